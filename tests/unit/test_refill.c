/* SPDX-License-Identifier: MIT */
#include "core/heap/refill.h"

#include "core/heap/decay.h"
#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks return to their slabs */

static struct hak_heap *t;
static unsigned cls;
static size_t capacity;

static void start(const char *settings)
{
    t = unit_init_heap(settings);
    cls = hak_class_of(SIZE);
    capacity = unit_slab_capacity(SIZE);
}

TEST(a_refill_brings_a_page_of_blocks_at_most_a_batch)
{
    start(NULL);
    unsigned b = hak_class_of(64);
    hak_free(hak_malloc(64));
    assert_int_equal(t->counters.refills, 1);
    assert_int_equal(t->bins[b].refills, 1);
    assert_in_range(t->counters.refill_blocks, 2, hak_min(4096 / hak_strides[b], hak_parts.batch[b]));
    assert_int_equal(unit_bin_length(b), t->counters.refill_blocks);
}

TEST(without_batches_one_block_a_refill)
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
    assert_true(t->counters.checks < 10000 / 8);
    assert_int_equal(t->counters.overflows, 0);
    assert_int_equal(t->counters.refills, 1);
}

static const struct {
    const char *settings;
    uint64_t early, low_water;
} thresholds[] = {
    {"HAKMEM_TINY_P0_DRAIN_THRESH=10", 10, 0},
    {"HAKMEM_TINY_P0_DRAIN_THRESH=11", 0, 10},
    {"HAKMEM_TINY_P0_DRAIN_THRESH=1 HAKMEM_TINY_P0_NO_DRAIN=1", 0, 0},
};

/* Another thread frees ten blocks. From the threshold on they come before the thread's own free blocks; fewer come
 * before new blocks are cut. */
TEST_EACH(remote_blocks_are_collected_by_their_number, thresholds)
{
    start(row->settings);
    struct unit_block *mine = unit_blocks(SIZE, 12), *others = mine->next->next;
    mine->next->next = NULL;
    unit_free_by_other(others);
    assert_int_equal(hak_slab_remote_count(hak_space_slab(mine)), 10);
    while (hak_cache_first(cls))
        unit_blocks(SIZE, 1);
    unit_blocks(SIZE, 1);
    assert_int_equal(t->counters.remote_early, row->early);
    assert_int_equal(t->counters.remote_low_water, row->low_water);
    assert_int_equal(hak_slab_remote_count(hak_space_slab(mine)), 10 - row->early - row->low_water);
}

TEST(remote_blocks_come_before_a_new_slab)
{
    start("HAKMEM_TINY_P0_NO_DRAIN=1");
    struct unit_block *mine = unit_blocks(SIZE, capacity);
    unit_free_by_other(mine->next);
    unit_blocks(SIZE, capacity - 1);
    assert_int_equal(t->counters.slabs_acquired, 1);
    assert_int_equal(t->counters.remote_saved, capacity - 1);
}

TEST(a_free_block_of_the_next_six_classes_serves_before_new_pages)
{
    start(NULL);
    unsigned small = hak_class_of(8192);
    void *larger = hak_malloc(hak_strides[small + 6]), *too_large = hak_malloc(hak_strides[small + 7]);
    hak_free(larger);
    hak_free(too_large);
    assert_ptr_not_equal(hak_alloc_aligned(4096, 8192), larger); /* its stride is no multiple of the alignment */
    void *tiny = hak_malloc(100);
    while (hak_cache_first(small))
        hak_malloc(8192);
    assert_ptr_equal(hak_malloc(8192), larger);
    assert_int_equal(t->counters.borrowed, 1);
    assert_ptr_not_equal(hak_malloc(8192), too_large);
    hak_free(larger); /* to its own bin */
    assert_ptr_equal(hak_cache_first(small + 6), larger);
    hak_free(tiny);
}

TEST(nothing_is_borrowed_where_the_class_has_free_blocks_or_is_below_4_kib)
{
    start(NULL);
    unsigned large = hak_class_of(8192), least = 0;
    while (hak_strides[least] < 4096)
        least++;
    unit_free_blocks(unit_blocks(hak_class_usable(least + 1), 1));
    assert_null(hak_bin_fall_back(t, least - 1));
    assert_non_null(hak_bin_fall_back(t, least));
    enum { N = 400 };
    static void *blocks[N];
    for (unsigned i = 0; i < N; i++)
        blocks[i] = hak_malloc(8192);
    for (unsigned i = 0; i < N; i += 2)
        hak_free(blocks[i]);
    hak_bins_flush(t);
    hak_free(hak_malloc(hak_strides[large + 1]));
    assert_true(t->bins[large].slabs && hak_slab_free_blocks(t->bins[large].slabs));
    assert_null(hak_bin_fall_back(t, large));
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
