/* SPDX-License-Identifier: MIT */
#include "core/heap/bin.h"

#include <string.h>

#include "core/malloc/malloc.h"
#include "core/heap/bin.h"
#include "core/heap/drain.h"
#include "core/heap/remote_cache.h"
#include "core/heap/heap.h"
#include "core/heap/owned.h"
#include "unit.h"

#define SIZE 2000 /* has no header in any build: foreign blocks go home */

static struct hak_thread *t;
static unsigned cls;
static size_t capacity;

static void start(const char *settings)
{
    unit_start(settings);
    t = unit_thread();
    assert_non_null(t);
    cls = hak_class_of(SIZE);
    capacity = unit_slab_capacity(SIZE);
}

TEST(a_refill_brings_a_page_of_blocks_at_most_a_batch)
{
    start(NULL);
    unsigned b = hak_class_of(64);
    hak_free(hak_malloc(64));
    assert_int_equal(t->counters.refills, 1);
    assert_in_range(t->counters.refill_blocks, 2, hak_min(4096 / hak_strides[b], hak_parts.batch[b]));
    assert_int_equal(unit_bin_length(b), t->counters.refill_blocks);
}

TEST(without_batches_one_block_a_trip)
{
    start("HAKMEM_TINY_P0_DISABLE=1");
    unit_free_blocks(unit_blocks(64, 500));
    assert_int_equal(t->counters.refills, 500);
    assert_int_equal(t->counters.refill_blocks, 500);
}

TEST(a_bin_stays_bounded)
{
    start(NULL);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned b = 0; b < HAK_NCLASSES; b++) {
            size_t keep = hak_parts.capacity[b], n = 4 * keep + 600;
            unit_free_blocks(unit_blocks(hak_class_usable(b), hak_min(n, 20 * HAK_MIB / hak_strides[b])));
            if (unit_bin_length(b) > keep + hak_max(512, keep))
                fail_msg("bin of %u bytes holds %zu", hak_strides[b], unit_bin_length(b));
        }
    assert_true(t->counters.overflows > 0 && t->counters.drained_blocks > 0);
    unit_census();
}

TEST(a_balanced_bin_is_looked_at_less_and_less)
{
    start(NULL);
    for (unsigned i = 0; i < 10000; i++)
        hak_free(hak_malloc(SIZE));
    assert_true(t->counters.looks < 10000 / 8);
    assert_int_equal(t->counters.overflows, 0);
    assert_int_equal(t->counters.refills, 1);
}

TEST(draining_gives_up_every_slab_without_live_blocks)
{
    start(NULL);
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        unit_free_blocks(unit_blocks(hak_class_usable(b), 50));
    void *live = hak_malloc(SIZE);
    assert_true(t->slabs > 10);
    hak_heap_drain(t);
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        assert_null(hak_self.head[b]);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 1);
    assert_int_equal(t->slabs, 1);
    assert_int_equal(unit_pages_in_use(&c), hak_slab_pages[cls]);
    hak_free(live);
}

/* FULL slabs are the owner's again when it frees into them. */
TEST(full_slabs_are_reclaimed_by_their_last_owner)
{
    start(NULL);
    struct unit_block *blocks = unit_blocks(SIZE, 4 * capacity);
    assert_true(unit_transitions(HAK_SLAB_ACTIVE, HAK_SLAB_FULL) >= 3);
    unit_free_blocks(blocks);
    hak_heap_drain(t);
    assert_true(t->counters.reclaimed >= 3);
    assert_int_equal(unit_transitions(HAK_SLAB_FULL, HAK_SLAB_ACTIVE), t->counters.reclaimed);
    assert_int_equal(unit_transitions(HAK_SLAB_FULL, HAK_SLAB_PARTIAL), 0);
    assert_int_equal(unit_census().used, 0);
}

/* Frees one block of each slab, then the rest by another thread. The owner makes no call after that. */
static struct unit_block *pinned;

static void *free_pinned(void *unused)
{
    unit_free_blocks(pinned);
    hak_remote_cache_flush(unit_thread());
    return unused;
}

TEST(slabs_beyond_a_few_are_nobodys_and_empty_themselves)
{
    const unsigned sizes[] = {64, SIZE, 20000};
    start(NULL);
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        unsigned c = hak_class_of(sizes[i]);
        size_t in_slab = unit_slab_capacity(sizes[i]), slabs = 4 * HAK_OWNED_PAGES / hak_slab_pages[c];
        struct unit_block *block = unit_blocks(sizes[i], slabs * in_slab), *mine = NULL;
        pinned = NULL;
        for (size_t n = 0; block; n++) {
            struct unit_block *next = block->next, **list = n % in_slab == 0 ? &mine : &pinned;
            block->next = *list;
            *list = block;
            block = next;
        }
        unit_free_blocks(mine);
        hak_drain(t, hak_self.head[c]);
        hak_self.head[c] = NULL;
        assert_in_range(t->bins[c].owned_pages, 1, HAK_OWNED_PAGES);
        unit_in_thread(free_pinned, NULL);
        unit_sweep();
        struct hak_census census = unit_census();
        if (unit_pages_in_use(&census) > (i + 1) * HAK_OWNED_PAGES)
            fail_msg("%u-byte blocks: %zu pages stay", sizes[i], (size_t)unit_pages_in_use(&census));
    }
}

static struct unit_block *shared, *shared_rest;

static void *allocate_some(void *n)
{
    shared = unit_blocks(SIZE, *(size_t *)n);
    return NULL;
}

static void *free_shared(void *unused)
{
    unit_free_blocks(shared);
    return unused;
}

TEST(foreign_blocks_go_home_in_groups)
{
    start(NULL);
    size_t n = 3 * capacity;
    unit_in_thread(allocate_some, &n);
    unit_free_blocks(shared);
    hak_remote_cache_flush(t);
    assert_int_equal(t->counters.remote_blocks, n);
    assert_in_range(t->counters.remote_batches, 1, n / 4 + 3); /* neighbours go together, four at a time */
    unit_sweep();
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(unit_pages_in_use(&c), 0); /* FULL -> PARTIAL -> EMPTY by remote frees alone */
}

TEST(without_a_descriptor_foreign_blocks_go_home_at_once)
{
    start(NULL);
    size_t n = 2;
    unit_in_thread(allocate_some, &n);
    struct hak_slab *slab = hak_space_slab(shared);
    hak_drain(NULL, memset(shared->next, 0, sizeof *shared));
    assert_int_equal(hak_slab_remote_count(slab), 1);
    hak_drain(NULL, memset(shared, 0, sizeof *shared));
    unit_sweep();
    assert_int_equal(unit_census().used, 0);
}

static void others_give_ten_back(const char *settings)
{
    start(settings);
    struct unit_block *mine = unit_blocks(SIZE, 12);
    shared = mine->next->next;
    mine->next->next = NULL;
    unit_in_thread(free_shared, NULL);
    assert_int_equal(hak_slab_remote_count(hak_space_slab(mine)), 10);
    while (hak_self.head[cls])
        unit_blocks(SIZE, 1);
    unit_blocks(SIZE, 1);
}

TEST(many_remote_blocks_are_collected_before_own_ones)
{
    others_give_ten_back("HAKMEM_TINY_P0_DRAIN_THRESH=10");
    assert_int_equal(t->counters.remote_early, 10);
    assert_int_equal(hak_slab_remote_count(hak_space_slab(shared)), 0);
}

TEST(few_remote_blocks_are_collected_before_new_ones_are_cut)
{
    others_give_ten_back("HAKMEM_TINY_P0_DRAIN_THRESH=11");
    assert_int_equal(t->counters.remote_early, 0);
    assert_int_equal(t->counters.remote_low_water, 10);
}

TEST(few_remote_blocks_wait_while_own_ones_are_free)
{
    start("HAKMEM_TINY_P0_DRAIN_THRESH=3");
    struct unit_block *live = unit_blocks(SIZE, 1);
    unit_free_blocks(unit_blocks(SIZE, 8));
    shared = unit_blocks(SIZE, 2);
    hak_heap_drain(t);
    unit_in_thread(free_shared, NULL);
    unit_blocks(SIZE, 1);
    assert_int_equal(hak_slab_remote_count(hak_space_slab(live)), 2);
}

TEST(early_collection_can_be_switched_off)
{
    others_give_ten_back("HAKMEM_TINY_P0_DRAIN_THRESH=1 HAKMEM_TINY_P0_NO_DRAIN=1");
    assert_int_equal(t->counters.remote_early, 0);
}

TEST(remote_blocks_come_before_a_new_slab)
{
    start("HAKMEM_TINY_P0_NO_DRAIN=1");
    struct unit_block *mine = unit_blocks(SIZE, capacity);
    shared = mine->next;
    mine->next = NULL;
    unit_in_thread(free_shared, NULL);
    unit_blocks(SIZE, capacity - 1);
    assert_int_equal(t->counters.slabs_acquired, 1);
    assert_int_equal(t->counters.remote_saved, capacity - 1);
}

TEST(a_free_block_of_the_next_three_classes_serves_before_new_pages)
{
    start(NULL);
    unsigned small = hak_class_of(8192);
    void *larger = hak_malloc(hak_strides[small + 3]), *too_large = hak_malloc(hak_strides[small + 4]);
    hak_free(larger);
    hak_free(too_large);
    assert_ptr_not_equal(hak_alloc_aligned(4096, 8192), larger); /* its stride is no multiple of the alignment */
    void *tiny = hak_malloc(100);
    while (hak_self.head[small])
        hak_malloc(8192);
    assert_ptr_equal(hak_malloc(8192), larger);
    assert_int_equal(t->counters.borrowed, 1);
    assert_ptr_not_equal(hak_malloc(8192), too_large);
    hak_free(larger); /* to its own bin */
    assert_ptr_equal(hak_self.head[small + 3], larger);
    hak_free(tiny);
}

TEST(a_program_that_only_frees_keeps_nothing_in_the_bin)
{
    start(NULL);
    size_t keep = hak_parts.capacity[cls];
    unit_free_blocks(unit_blocks(SIZE, 8 * keep + 8 * 256));
    assert_true(t->counters.overflows > 1);
    assert_true(unit_bin_length(cls) <= 256);
}

TEST(small_blocks_freed_in_any_order_come_back_in_address_order)
{
    enum { N = 4001, SMALL = 56 };
    static char *blocks[N];
    start(NULL);
    for (unsigned i = 0; i < N; i++)
        blocks[i] = hak_malloc(SMALL);
    for (unsigned i = 100; i < N; i++) /* the others hold the slabs */
        hak_free(blocks[(size_t)i * 1009 % N]);
    hak_heap_drain(t);
    unsigned ascending = 0;
    char *before = hak_malloc(SMALL);
    for (unsigned i = 101; i < N; i++) {
        char *block = hak_malloc(SMALL);
        ascending += block > before;
        before = block;
    }
    assert_true(ascending >= N / 100 * 95);
}

TEST(foreign_blocks_serve_the_next_refill)
{
    start(NULL);
    size_t n = 2 * capacity;
    unit_in_thread(allocate_some, &n);
    struct unit_block *mine = unit_blocks(SIZE, 1), *next = shared->next->next->next;
    void *one = shared->next->next; /* freed last, so the first to be used again */
    shared->next->next->next = NULL;
    while (hak_self.head[cls])
        unit_blocks(SIZE, 1);
    unit_free_blocks(shared);
    assert_ptr_equal(hak_malloc(SIZE), one);
    assert_int_equal(t->counters.foreign_reused, 3);
    assert_int_equal(t->counters.remote_blocks, 0);
    unit_free_blocks(next);
    unit_free_blocks(mine);
}

static void *only_free_foreign(void *n)
{
    struct hak_thread *me = unit_thread();
    hak_free(shared); /* waits here */
    hak_thread_ask_drain();
    struct unit_block *block = shared_rest, *next;
    for (size_t i = 0; i < *(size_t *)n; i++, block = next) {
        next = block->next;
        hak_free(block);
    }
    assert_int_equal(me->drain_done, 1);
    return NULL;
}

TEST(a_thread_that_only_frees_foreign_blocks_hears_of_a_trim)
{
    start(NULL);
    size_t n = hak_parts.capacity[cls] + 1;
    shared = unit_blocks(SIZE, n + 1);
    shared_rest = shared->next;
    unit_in_thread(only_free_foreign, &n);
}

static void *allocate_one(void *size)
{
    shared = hak_malloc(*(size_t *)size);
    return NULL;
}

/* How many foreign blocks served after one of that size was freed. */
static uint64_t reused_of_one(size_t size)
{
    start(NULL);
    unit_in_thread(allocate_one, &size);
    hak_free(shared);
    hak_malloc(size);
    return t->counters.foreign_reused;
}

TEST(a_single_small_foreign_block_goes_home)
{
    if (HAK_HEADER_LIMIT)
        skip(); /* no small block is foreign */
    assert_int_equal(reused_of_one(64), 0);
}

TEST(a_single_larger_foreign_block_serves)
{
    assert_int_equal(reused_of_one(SIZE), 1);
}

TEST(prewarming_fills_the_bin)
{
    start(NULL);
    hak_bin_prewarm(t, cls, 10);
    assert_int_equal(unit_bin_length(cls), 10);
    assert_int_equal(t->counters.prewarmed, 10);
    unit_free_blocks(unit_blocks(SIZE, 10));
    assert_int_equal(unit_bin_length(cls), 10);
}

TEST(errno_is_kept_while_blocks_go_back)
{
    start(NULL);
    struct unit_block *blocks = unit_blocks(SIZE, 3000);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    errno = 55;
    unit_free_blocks(blocks);
    assert_int_equal(errno, 55);
}

/* Times that the clock was looked at in so many pairs. */
static uint32_t looks_at_the_clock(unsigned pairs, size_t most)
{
    uint64_t random = 1;
    uint32_t looks = 0;
    for (unsigned i = 0; i < pairs; i++) {
        uint32_t work = hak_work;
        hak_free(hak_malloc(16 + unit_random(&random) % most));
        looks += hak_work < work; /* began anew */
    }
    return looks;
}

TEST(pairs_of_any_size_are_a_heartbeat)
{
    start(NULL);
    looks_at_the_clock(10000, 1000);
    for (unsigned i = 0; i < 10; i++)
        assert_true(looks_at_the_clock(1000, 1) >= 2);
    assert_true(looks_at_the_clock(10000, 1000) >= 20);
}

static void drain(void)
{
    hak_heap_drain(t);
}

TEST(a_block_written_to_after_free_is_found)
{
    start(NULL);
    struct unit_block *blocks = unit_blocks(SIZE, 2), *a = blocks;
    unit_free_blocks(blocks);
    a->next = (struct unit_block *)(void *)&blocks;
    assert_dies(drain, "corrupted list of free blocks");
}

TEST(without_memory_a_refill_gives_null_and_later_blocks)
{
    start(NULL);
    fake_os_refuse_any(1, ENOMEM, true);
    assert_null(hak_bin_refill(t, cls, HAK_REFILL_WITHIN_BUDGET));
    assert_null(hak_bin_take_one(t, cls, HAK_REFILL_WITHIN_BUDGET));
    fake_os_allow();
    void *p = hak_bin_refill(t, cls, HAK_REFILL_WITHIN_BUDGET);
    assert_non_null(p);
    hak_free(p);
}

UNIT_MAIN(T(a_refill_brings_a_page_of_blocks_at_most_a_batch), T(without_batches_one_block_a_trip),
          T(a_bin_stays_bounded), T(a_balanced_bin_is_looked_at_less_and_less),
          T(draining_gives_up_every_slab_without_live_blocks), T(full_slabs_are_reclaimed_by_their_last_owner),
          T(slabs_beyond_a_few_are_nobodys_and_empty_themselves),
          T(foreign_blocks_go_home_in_groups), T(without_a_descriptor_foreign_blocks_go_home_at_once),
          T(many_remote_blocks_are_collected_before_own_ones),
          T(few_remote_blocks_are_collected_before_new_ones_are_cut), T(few_remote_blocks_wait_while_own_ones_are_free),
          T(early_collection_can_be_switched_off), T(remote_blocks_come_before_a_new_slab),
          T(small_blocks_freed_in_any_order_come_back_in_address_order), T(foreign_blocks_serve_the_next_refill),
          T(a_single_small_foreign_block_goes_home), T(a_single_larger_foreign_block_serves),
          T(a_thread_that_only_frees_foreign_blocks_hears_of_a_trim),
          T(a_program_that_only_frees_keeps_nothing_in_the_bin),
          T(a_free_block_of_the_next_three_classes_serves_before_new_pages), T(prewarming_fills_the_bin),
          T(errno_is_kept_while_blocks_go_back), T(pairs_of_any_size_are_a_heartbeat),
          T(a_block_written_to_after_free_is_found), T(without_memory_a_refill_gives_null_and_later_blocks))
