/* SPDX-License-Identifier: MIT */
#include "core/heap/drain.h"

#include <limits.h>
#include <string.h>

#include "core/heap/decay.h"
#include "core/heap/heaps.h"
#include "core/heap/remote_cache.h"
#include "core/pages/mark.h"
#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks return to their slabs */

static struct hak_heap *t;
static size_t capacity;

static void start(const char *settings)
{
    t = unit_init_heap(settings);
    capacity = unit_slab_capacity(SIZE);
}

static struct unit_block *shared;

static void *free_shared(void *unused)
{
    struct hak_heap *me = unit_thread();
    unit_free_blocks(shared);
    hak_remote_cache_flush(me);
    assert_in_range(me->counters.remote_blocks, capacity / 2, capacity);
    assert_in_range(me->counters.remote_batches, 1, capacity / 4 + 3); /* neighbours return together, four at a time */
    return unused;
}

TEST(blocks_of_an_owned_slab_go_home_in_groups)
{
    start(NULL);
    shared = unit_blocks(SIZE, capacity - 1);
    assert_int_equal(hak_slab_state(hak_space_slab(shared)), HAK_SLAB_ACTIVE);
    unit_in_thread(free_shared, NULL);
    hak_bins_flush(t);
    assert_int_equal(unit_census().used, 0);
}

enum { MANY = 20000, MANY_SIZE = 56 };
static char *many[MANY];

static void *allocate_many(void *unused)
{
    for (unsigned i = 0; i < MANY; i++)
        many[i] = hak_malloc(MANY_SIZE);
    return unused;
}

/* In an order that has nothing to do with addresses. */
static void *free_many(void *unused)
{
    struct hak_heap *me = unit_thread();
    unsigned tagged = 0;
    uint64_t tag = me->tag;
    for (unsigned i = 0; i < MANY; i++) {
        char *block = many[(size_t)i * 7919 % MANY];
        uint64_t page = (uintptr_t)block >> HAK_PAGE_LG;
        tagged += (page ^ hak_tag_load(page) ^ tag) < HAK_NCLASSES;
        hak_free(block);
    }
    hak_bins_flush(me);
    assert_true(HAK_HEADER_LIMIT || tagged > MANY / 100 * 90); /* most frees took the fast path, */
    assert_in_range(me->counters.remote_blocks, 0, MANY / 10);
    assert_in_range(me->counters.drained_blocks, MANY / 100 * 85, MANY); /* and most blocks no remote list */
    return unused;
}

static void *(*const hands[][2])(void *unused) = {{allocate_many, NULL}, {NULL, free_many}};

/* Of a thread that has ended, and of one that waits. */
TEST_EACH(whoever_frees_blocks_of_slabs_without_owner_puts_them_there, hands)
{
    start(NULL);
    if (row[0][0])
        unit_in_thread(row[0][0], NULL);
    else
        allocate_many(NULL);
    if (row[0][1])
        unit_in_thread(row[0][1], NULL);
    else
        free_many(NULL);
    hak_bins_flush(t);
    hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
    unit_sweep();
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(unit_pages_in_use(&c), 0);
}

static void drain_one(void *block)
{
    hak_mark_renew(block, hak_class_of(SIZE)); /* as free does */
    hak_next_store(block, NULL);
    hak_drain(NULL, block);
}

TEST(without_a_heap_remote_blocks_go_home_at_once_and_the_tag_with_the_last)
{
    start(NULL);
    shared = unit_blocks_of_other(SIZE, 2);
    uint64_t page = (uintptr_t)shared >> HAK_PAGE_LG;
    struct hak_slab *slab = hak_space_slab(shared);
    struct unit_block *last = shared->next;
    assert_dies(drain_one((char *)shared + 16), "is not the start of a block");
    drain_one(shared);
    assert_int_equal(hak_slab_remote_count(slab), 1);
    assert_int_not_equal(hak_tag_load(page), 0);
    drain_one(last);
    assert_int_equal(hak_tag_load(page), 0); /* so that a second free takes the slow path */
    unit_sweep();
    assert_int_equal(unit_census().used, 0);
}

/* A FULL slab belongs to its last owner again when that frees into it. */
TEST(full_slabs_are_reclaimed_by_their_last_owner)
{
    start(NULL);
    struct unit_block *blocks = unit_blocks(SIZE, 4 * capacity);
    assert_true(unit_transitions(HAK_SLAB_ACTIVE, HAK_SLAB_FULL) >= 3);
    unit_free_blocks(blocks);
    hak_bins_flush(t);
    assert_true(t->counters.reclaimed >= 3);
    assert_int_equal(unit_transitions(HAK_SLAB_FULL, HAK_SLAB_ACTIVE), t->counters.reclaimed);
    assert_int_equal(unit_transitions(HAK_SLAB_FULL, HAK_SLAB_PARTIAL), 0);
    assert_int_equal(unit_census().used, 0);
}

TEST(small_blocks_freed_in_any_order_come_back_in_address_order)
{
    enum { N = 4001, SMALL = 56 };
    static char *blocks[N];
    start(NULL);
    if (HAK_HARDENED)
        skip();
    for (unsigned i = 0; i < N; i++)
        blocks[i] = hak_malloc(SMALL);
    for (unsigned i = 100; i < N; i++) /* the others hold the slabs */
        hak_free(blocks[(size_t)i * 1009 % N]);
    hak_bins_flush(t);
    unsigned ascending = 0;
    char *before = hak_malloc(SMALL);
    for (unsigned i = 101; i < N; i++) {
        char *block = hak_malloc(SMALL);
        ascending += block > before;
        before = block;
    }
    assert_true(ascending >= N / 100 * 95);
}

static void drain(void)
{
    hak_bins_flush(t);
}

/* The slab of a block that is freed twice was given up meanwhile, and its pages now belong to a span. */
TEST(blocks_do_not_go_home_to_a_span)
{
    start(NULL);
    shared = unit_blocks_of_other(SIZE, 2);
    struct hak_slab *slab = hak_space_slab(shared);
    slab->cls = HAK_CLASS_SPAN;
    slab->stride = 0;
    HAK_STORE_RELAXED(&slab->word, HAK_SLAB_SPAN);
    assert_dies(drain_one(shared), "which is no block of ours");
}

static void *free_one_twice(void *unused)
{
    struct hak_heap *me = unit_thread();
    void *others = hak_malloc(SIZE / 2), *between = ((struct unit_block *)shared)->next;
    hak_remote_cache_put(me, hak_class_of(SIZE), shared);
    hak_free(others);
    hak_remote_cache_put(me, hak_class_of(SIZE), between);
    hak_remote_cache_put(me, hak_class_of(SIZE), shared);
    hak_remote_cache_flush(me);
    return unused;
}

/* As many blocks returned as were handed out, but one of them is still in use. */
TEST(a_slab_does_not_go_with_a_live_block)
{
    start(NULL);
    if (!HAK_BLOCK_BATCHES)
        skip(); /* a slab's free list is not read at its end; hardened arrays do not return the block twice */
    shared = unit_blocks(SIZE, 3);
    hak_cache_drain(t, hak_class_of(SIZE));
    unit_in_thread(free_one_twice, NULL);
    assert_dies(drain(), "double free");
}

/* Neighbours whose bits lie in one word of the bitmap return together. The i-th of n blocks that returns is i * step.
 */
TEST(blocks_go_home_in_any_order)
{
    static const size_t sizes[] = {16, 64, 100, 2000, 9000}, steps[] = {1, 2, 3, SIZE_MAX /* down */};
    static void *blocks[600];
    start(NULL);
    for (size_t s = 0; s < COUNT(sizes) * COUNT(steps); s++)
        for (size_t n = 1; n <= COUNT(blocks); n += n < 70 ? 6 : 54) { /* no multiple of 2 or 3 */
            for (size_t i = 0; i < n; i++)
                assert_non_null(blocks[i] = hak_malloc(sizes[s / COUNT(steps)]));
            for (size_t i = 0, at = 0; i < n; i++, at = (at + n + steps[s % COUNT(steps)]) % n)
                hak_free(blocks[at]);
            hak_bins_flush(t);
            hak_remote_cache_flush(t);
            unit_sweep();
            assert_int_equal(unit_census().used, 0);
        }
}

#if HAK_CACHE_SLOTS
static void *row[8];

static void fill_row(char *first, size_t stride)
{
    for (size_t i = 0; i < COUNT(row); i++)
        row[i] = first + i * stride;
}

/* One entry is a duplicate, a free block or no block; or no entry is a block. */
TEST(neighbours_are_looked_at_one_by_one)
{
    if (HAK_HARDENED)
        skip(); /* the blocks carry no marks */
    start(NULL);
    char *blocks[16];
    for (size_t i = 0; i < COUNT(blocks); i++)
        blocks[i] = hak_malloc(SIZE);
    size_t stride = hak_strides[hak_class_of(SIZE)];
    char *first = blocks[0];
    for (size_t i = 0; i < COUNT(blocks); i++)
        first = blocks[i] < first ? blocks[i] : first;
    uint32_t carved = hak_space_slab(first)->carved;
    assert_true(carved + COUNT(row) <= capacity);
    fill_row(first + 16, stride);
    assert_dies(hak_drain_array(t, row, COUNT(row)), "is not the start of a block");
    fill_row(first + carved * stride, stride);
    assert_dies(hak_drain_array(t, row, COUNT(row)), "was never handed out");
    fill_row(first, stride);
    row[5] = row[3];
    assert_dies(hak_drain_array(t, row, COUNT(row)), "is free already");
    fill_row(first, stride);
    hak_drain_array(t, row + 6, 1);
    assert_dies(hak_drain_array(t, row, COUNT(row)), "is free already");
    hak_drain_array(t, row, 0);
    assert_int_equal(t->counters.drained_blocks, 1);
    row[6] = first + 6 * stride + 16;
    assert_dies(hak_drain_array(t, row, COUNT(row)), "is not the start of a block");
}
#endif

/* A cache that links blocks finds it, as do hardened ones. Others do not read it. */
TEST(a_block_written_to_after_free_does_no_harm)
{
    start(NULL);
    struct unit_block *blocks = unit_blocks(SIZE, 2), *a = blocks;
    unit_free_blocks(blocks);
    a->next = (struct unit_block *)(void *)&blocks;
    if (HAK_CACHE_SLOTS && !HAK_HARDENED) {
        drain();
        assert_int_equal(unit_census().used, 0);
    } else {
        assert_dies(drain(), HAK_HARDENED ? "is free, and was written to" : "a list of free blocks leads to");
    }
}

TEST(one_slab_of_a_class_stays)
{
    start(NULL);
    for (unsigned slabs = 1; slabs < 4; slabs++) {
        unit_free_blocks(unit_blocks(SIZE, slabs * capacity));
        hak_cache_drain(t, hak_class_of(SIZE));
        assert_int_equal(t->slabs, 1);
        assert_int_equal(unit_census().used, 0);
    }
}
