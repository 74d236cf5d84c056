/* SPDX-License-Identifier: MIT
 * The contract of all caches (core/heap/caches/contract.h), and what each cache adds. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "core/heap/caches/slots/slots.h"
#include "core/heap/decay.h"
#include "core/heap/heaps.h"
#include "core/heap/refill.h"
#include "core/heap/thread.h"
#include "core/os/meta.h"
#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks return to their slabs */

static struct hak_heap *t;

static unsigned visited;

static void count_visit(unsigned cls, void *block)
{
    struct hak_slab *slab = hak_space_slab(block);
    assert_true(slab && slab->cls == cls);
    visited++;
}

TEST(the_block_freed_last_is_taken_first_and_all_are_visited)
{
    t = unit_init_heap(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        size_t size = hak_class_usable(cls);
        void *a = hak_malloc(size), *b = hak_malloc(size);
        hak_free(a);
        hak_free(b);
        assert_ptr_equal(hak_cache_first(cls), b);
        assert_ptr_equal(hak_malloc(size), b);
        assert_ptr_equal(hak_malloc(size), a);
    }
    unit_free_blocks(unit_blocks(SIZE, 10));
    hak_cache_each(hak_class_of(SIZE), count_visit);
    assert_true(visited >= 2);
    assert_int_equal(visited, unit_bin_length(hak_class_of(SIZE)));
}

TEST(a_trim_is_heard_by_a_thread_that_recycles_one_block)
{
    t = unit_init_heap(NULL);
    hak_free(hak_malloc(64));
    hak_thread_request_flush();
    unsigned pairs = 0;
    for (; !t->flush_done && pairs < 10000; pairs++)
        hak_free(hak_malloc(64));
    assert_in_range(pairs, 0, 1000);
}

#if HAK_CACHE_ARRAY
static size_t slots_of(const struct hak_bin *b)
{
    return b->own.slots_lg ? (size_t)1 << b->own.slots_lg : 0;
}

static unsigned char *written[3000];

/* Some blocks stay live, so that their slabs stay. */
static bool stays(size_t i, size_t n)
{
    return i % 8 == 0 || i + 1 == n;
}

/* Fills all blocks and frees most of them. A list would write links into their first words. */
static void free_most(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        memset(written[i], 0xa5, size);
    for (size_t i = 0; i < n; i++)
        if (!stays(i, n))
            hak_free(written[i]);
}

static void expect_unwritten(size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < sizeof(void *); at++)
            if (written[i][at] != 0xa5)
                fail_msg("%zu bytes: block %zu was written to", size, i);
}

TEST(a_free_block_is_neither_read_nor_written)
{
    if (HAK_HARDENED)
        skip(); /* a freed block carries a mark */
    t = unit_init_heap(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        size_t size = hak_class_usable(cls), n = hak_min(COUNT(written), HAK_MIB / size); /* all remain the thread's */
        for (size_t i = 0; i < n; i++)
            written[i] = hak_malloc(size);
        free_most(n, size);
        expect_unwritten(n, size);
        hak_bins_flush(t);
        expect_unwritten(n, size);
        for (size_t i = 0; i < n; i++)
            if (!stays(i, n))
                written[i] = hak_malloc(size);
        expect_unwritten(n, size);
        for (size_t i = 0; i < n; i++)
            hak_free(written[i]);
        hak_bins_flush(t);
    }
    assert_int_equal(unit_census().used, 0);
}

TEST(arrays_begin_small_and_stay_bounded)
{
    t = unit_init_heap(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        size_t size = hak_class_usable(cls);
        hak_free(hak_malloc(size));
        assert_in_range(slots_of(&t->bins[cls]), 4, 16);
        for (unsigned round = 0; round < 4; round++)
            unit_free_blocks(unit_blocks(size, hak_min(2000, 8 * HAK_MIB / size)));
        for (unsigned i = 0; i < 3000; i++)
            hak_free(hak_malloc(size));
        assert_in_range(slots_of(&t->bins[cls]), 16, 2 * (hak_parts.capacity[cls] + HAK_ARRAY_FREES));
    }
}

TEST(a_bin_as_long_as_its_capacity_does_not_overflow)
{
    t = unit_init_heap(NULL);
    unsigned cls = hak_class_of(SIZE);
    unit_free_blocks(unit_blocks(SIZE, 500)); /* it owns slabs */
    static void *blocks[500];
    uint32_t keep = hak_parts.capacity[cls];
    assert_in_range(keep, 2, COUNT(blocks) - 1);
    for (uint32_t i = 0; i <= keep; i++)
        blocks[i] = hak_malloc(SIZE);
    hak_cache_drain(t, cls);
    for (uint32_t i = 0; i < keep - 1; i++)
        hak_free(blocks[i]);
    assert_int_equal(unit_bin_length(cls), keep - 1);
    uint64_t overflows = t->counters.overflows;
    hak_cache_check(t, cls, blocks[keep - 1]);
    assert_int_equal(unit_bin_length(cls), keep);
    assert_int_equal(t->counters.overflows, overflows);
    hak_cache_check(t, cls, blocks[keep]);
    assert_int_equal(t->counters.overflows, overflows + 1);
}

static void allocate_and_free_in_rows(void **blocks, uint32_t n, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < n; i++)
            blocks[i] = hak_malloc(64);
        for (uint32_t i = 0; i < n; i++)
            hak_free(blocks[i]);
    }
}

TEST(a_bin_grows_with_the_rows_of_frees_until_it_is_idle)
{
    static void *blocks[512];
    t = unit_init_heap(NULL);
    unsigned cls = hak_class_of(64);
    uint32_t row = 2u * hak_parts.capacity[cls];
    if (!HAK_CACHE_ARRAY || row > COUNT(blocks))
        skip();
    allocate_and_free_in_rows(blocks, row, 50);
    uint64_t overflows = t->counters.overflows, drained = t->counters.drained_blocks;
    allocate_and_free_in_rows(blocks, row, 50);
    assert_int_equal(t->counters.overflows, overflows);
    assert_int_equal(t->counters.drained_blocks, drained);
    hak_cache_halve(t, cls); /* as a scan does */
    allocate_and_free_in_rows(blocks, row, 50);
    assert_in_range(t->counters.overflows, overflows + 1, UINT64_MAX);
}

/* Each of them may be the last block of its slab, and nothing takes it when the program stops calling. */
TEST(after_a_long_burst_of_frees_a_bin_holds_few_blocks)
{
    t = unit_init_heap(NULL);
    for (size_t size = 16; size <= 1024; size *= 2) {
        unsigned cls = hak_class_of(size);
        struct unit_block *burst = unit_blocks(size, 32 * (hak_parts.capacity[cls] + HAK_ARRAY_FREES));
        unit_free_blocks(burst);
        assert_in_range(unit_bin_length(cls), 0, HAK_BIN_SHORT_TICK + 2);
        unit_free_blocks(unit_blocks(size, 2 * HAK_BIN_SHORT_TICK)); /* a refill ends the burst */
        assert_in_range(t->bins[cls].overflows, 0, 1);
    }
}

TEST(the_room_of_a_bin_is_never_more_than_its_free_slots)
{
    enum { N = 2000 };
    static void *blocks[N];
    uint64_t random = 7;
    t = unit_init_heap(NULL);
    for (unsigned i = 0; i < 300000; i++) {
        size_t at = unit_random(&random) % (i < 150000 ? N : N / 8), size = 16u << unit_random(&random) % 10;
        if (blocks[at])
            hak_free(blocks[at]);
        blocks[at] = unit_random(&random) % 3 ? hak_malloc(size) : NULL;
        if (i % 4096 == 0)
            hak_bins_flush(t);
        for (unsigned cls = 0; i % 16 == 0 && cls < HAK_NCLASSES; cls++) {
            const struct hak_bin *b = &t->bins[cls];
            uint32_t most = b->own.slots_lg ? hak_array_most(b) : 0, n = hak_array_length(b, cls);
            int room = hak_room_left(hak_self.room[cls]);
            if (n > most || room > (int)(most - n))
                fail_msg("class %u: %u blocks of %u, room %d", cls, n, most, room);
        }
    }
    unit_census();
}

static void *use_all_classes(void *unused)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        unit_free_blocks(unit_blocks(hak_class_usable(cls), 20));
    return unused;
}

TEST(slots_of_ended_threads_are_used_again)
{
    t = unit_init_heap(NULL);
    size_t settled = 0;
    for (unsigned i = 0; i < 40; i++) {
        unit_in_thread(use_all_classes, NULL);
        hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
        if (i == 20)
            settled = hak_meta_bytes();
    }
    /* A slab's bitmap grows once, if another class gets it; the slots of a thread take more than a page. */
    assert_in_range(hak_meta_bytes() - settled, 0, 19 * HAK_SYSTEM_PAGE - 1);
}

static pthread_barrier_t worked, over;

static void *use_all_classes_and_wait(void *unused)
{
    use_all_classes(unused);
    for (size_t size = 16; size <= 128; size += 16)
        unit_free_blocks(unit_blocks(size, 2000));
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&over);
    return unused;
}

enum { MANY = 24, WARM = 16 };

/* The threads work one after the other, and end together. */
static size_t metadata_of_many_threads(void)
{
    pthread_t threads[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        threads[i] = unit_begin(use_all_classes_and_wait, NULL);
        pthread_barrier_wait(&worked);
    }
    pthread_barrier_wait(&over);
    for (unsigned i = 0; i < MANY; i++)
        unit_join(threads[i]);
    return hak_meta_bytes();
}

TEST(slots_of_many_ended_threads_go_back_to_the_kernel)
{
    const struct hak_ledger_entry *advice = &hak_ledger[HAK_CAUSE_metadata][HAK_OS_madvise];
    t = unit_init_heap(NULL);
    pthread_barrier_init(&worked, NULL, 2);
    pthread_barrier_init(&over, NULL, MANY + 1);
    metadata_of_many_threads();
    assert_in_range(advice->calls, 1, 8 * (MANY - WARM));
    assert_true(advice->bytes > 16 * HAK_KIB * advice->calls); /* further regions are larger */
    size_t bytes = metadata_of_many_threads();
    enum { ROUNDS = HAK_SANITIZED ? 4 : 16 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2)
            fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
        /* In each round MANY - WARM threads return at least one region of 32 KiB. Some need more than others. */
        assert_true(metadata_of_many_threads() < bytes + (MANY - WARM) * 12 * 32 * HAK_KIB);
    }
    fake_os_allow();
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
}

static void *use_a_class(void *unused)
{
    unit_free_blocks(unit_blocks(SIZE, 100));
    return unused;
}

TEST(frees_of_ended_threads_are_counted)
{
    t = unit_init_heap(NULL);
    static struct hak_heaps_totals totals;
    unit_in_thread(use_a_class, NULL);
    hak_heaps_totals(&totals);
    assert_int_equal(totals.counters.classes[hak_class_of(SIZE)].served, 100);
}

/* From here on no call gets memory. */
static void take_all_slots(void)
{
    fake_os_refuse_any(1, ENOMEM, true);
    while (hak_meta_alloc(1))
        ;
    for (unsigned lg = HAK_SLOTS_LG_MAX; lg >= 2; lg--)
        while (hak_slots_get(t, lg))
            ;
}

/* The state of a heap that an earlier thread used, but not for this class. */
static void forget_slots(unsigned cls)
{
    t->bins[cls].own.slots = NULL;
    t->bins[cls].own.slots_lg = 0;
    hak_self.bin[cls] = (void *)(uintptr_t)hak_cache_no_slots;
    hak_self.room[cls] = HAK_ROOM_NONE;
}

TEST(without_memory_for_slots_the_kernel_is_seldom_asked)
{
    enum { PAIRS = 6400 };
    t = unit_init_heap(NULL);
    void *live = hak_malloc(SIZE);
    hak_bins_flush(t);
    forget_slots(hak_class_of(SIZE));
    take_all_slots();
    uint64_t calls = fake_os_total();
    for (unsigned i = 0; i < PAIRS; i++) {
        void *p = hak_malloc(SIZE);
        assert_non_null(p);
        hak_free(p);
    }
    assert_true(fake_os_total() - calls < PAIRS / 4);
    fake_os_allow();
    hak_free(live);
}

TEST(at_a_limit_slots_take_no_more_than_they_need)
{
    t = unit_init_heap(NULL);
    take_all_slots();
    t->own.refused = 0;
    fake_os_allow();
    fake_os_limit_maps(hak_os_page_size());
    assert_non_null(hak_slots_get(t, 3));
    size_t bytes = hak_meta_bytes();
    assert_non_null(hak_slots_get(t, 3));
    assert_int_equal(hak_meta_bytes(), bytes);
    assert_null(hak_slots_get(t, HAK_SLOTS_LG_MAX));
}

TEST(without_memory_for_slots_blocks_are_drained)
{
    t = unit_init_heap(NULL);
    struct unit_block *blocks = unit_blocks(64, 500);
    unsigned cls = hak_class_of(64), most = hak_array_most(&t->bins[cls]);
    take_all_slots();
    unit_free_blocks(blocks);
    assert_true(unit_bin_length(cls) <= most);
    void *alone = hak_bin_refill(t, hak_class_of(SIZE), HAK_REFILL_WITHIN_BUDGET); /* never used: no slots */
    assert_int_equal(unit_bin_length(hak_class_of(SIZE)), 0);
    if (alone)
        hak_mark_clear(alone, hak_class_of(SIZE));
    hak_free(alone); /* NULL if there was no slab */
    fake_os_allow();
    for (unsigned i = 0; i < 100 && !unit_bin_length(hak_class_of(SIZE)); i++)
        hak_free(hak_malloc(SIZE));
    assert_true(unit_bin_length(hak_class_of(SIZE)) > 0);
    unit_census();
}
#endif

#if !HAK_CACHE_ARRAY
TEST(a_bin_is_checked_for_the_first_time_after_some_frees)
{
    t = unit_init_heap(NULL);
    for (unsigned i = 0; i < 24; i++)
        hak_free(hak_malloc(SIZE));
    assert_int_equal(t->counters.checks, 0);
    for (unsigned i = 0; i < 24; i++)
        hak_free(hak_malloc(SIZE));
    assert_int_equal(t->counters.checks, 1);
}
#endif
