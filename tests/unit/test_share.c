/* SPDX-License-Identifier: MIT
 * Threads that use a class little, where threads are many: they own no slab of it, and hold little of it. */
#include "core/heap/share.h"

#include "core/heap/bin.h"
#include "core/heap/bins.h"
#include "unit.h"

#define MANY 100
#define BLOCKS 8

static struct hak_heap *start_among(uint32_t threads)
{
    struct hak_heap *t = unit_thread();
    assert_non_null(t);
    hak_share_set_heaps(threads); /* after the start, which sets the true number */
    return t;
}

static void *blocks[2][HAK_NCLASSES];

/* Keeps one block of each class, frees others. */
static void *keep_some(void *out)
{
    struct hak_heap *t = start_among(MANY);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        void **kept = out;
        kept[cls] = hak_malloc(hak_class_usable(cls));
        unit_free_blocks(unit_blocks(hak_class_usable(cls), BLOCKS));
        bool own = hak_strides[cls] < HAK_SHARE_STRIDE_MIN;
        assert_int_equal(t->bins[cls].slabs != NULL, own);
        if (!own)
            assert_in_range(unit_bin_length(cls) + t->bins[cls].remote_count, 0, 4 * hak_share_capacity(cls) + 2);
    }
    return NULL;
}

static void *take_one_of_each(void *out)
{
    start_among(MANY);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        ((void **)out)[cls] = hak_malloc(hak_class_usable(cls));
    return NULL;
}

/* Also the blocks that a refill brought beyond that one. */
TEST(a_thread_that_ends_leaves_nothing_but_what_lives)
{
    unit_start(NULL);
    unit_in_thread(take_one_of_each, blocks[0]);
    struct hak_census c = unit_census();
    assert_int_equal(c.used - c.remote, HAK_NCLASSES);
}

TEST(threads_among_many_share_slabs_and_keep_little)
{
    unit_start(NULL);
    unit_in_thread(keep_some, blocks[0]);
    unit_in_thread(keep_some, blocks[1]);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        struct hak_slab *slab = hak_space_slab(blocks[0][cls]);
        assert_ptr_not_equal(blocks[0][cls], blocks[1][cls]);
        assert_ptr_equal(hak_space_slab(blocks[1][cls]), slab);
        assert_int_equal(hak_slab_state(slab), HAK_SLAB_PARTIAL);
        hak_free(blocks[0][cls]);
        hak_free(blocks[1][cls]);
    }
    hak_bins_flush(unit_thread());
    unit_sweep();
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(unit_pages_in_use(&c), 0);
}

static uint64_t purged_inside(void)
{
    const struct hak_ledger_entry *e = hak_ledger[HAK_CAUSE_partial_release];
    return e[HAK_OS_madvise].bytes + e[HAK_OS_process_madvise].bytes;
}

static const struct {
    uint32_t threads;
    bool purges;
} crowds[] = {{2, false}, {MANY, true}};

/* Of a class too small to be shared. The thread may use a few blocks and wait, with all old pages of the slab. */
TEST_EACH(among_many_the_first_slab_of_a_thread_has_one_page, crowds)
{
    const size_t size = 40;
    unit_start(NULL);
    struct hak_heap *t = start_among(row->threads);
    assert_int_equal(t->bins[hak_class_of(size)].uses, 0);
    uint64_t before = purged_inside(),
             expected = row->purges && !HAK_BLOCKS_ARE_MARKED ? HAK_PAGE - hak_os_page_size() : 0;
    struct unit_block *few = unit_blocks(size, 5);
    assert_int_equal(purged_inside() - before, expected);
    struct unit_block *many = unit_blocks(size, 3 * HAK_PAGE / size); /* further slabs */
    assert_int_equal(purged_inside() - before, expected);
    unit_free_blocks(few);
    unit_free_blocks(many);
}

TEST(a_thread_that_goes_on_gets_slabs_of_its_own)
{
    unit_start(NULL);
    struct hak_heap *t = start_among(MANY);
    unsigned cls = hak_class_of(2000);
    uint32_t rounds = 0;
    for (; !t->bins[cls].slabs && rounds < 1000000; rounds++)
        unit_free_blocks(unit_blocks(2000, BLOCKS));
    uint32_t bound = HAK_LOAD_RELAXED(&hak_share_uses);
    assert_in_range(t->bins[cls].uses, bound, bound + BLOCKS);
    assert_true(rounds > 1);
    unit_free_blocks(unit_blocks(2000, unit_slab_capacity(2000)));
    assert_true(unit_bin_length(cls) > BLOCKS);
    unit_census();
}

/* A thread that only frees uses the class as well: its remote cache grows to the full size. */
TEST(a_thread_that_only_frees_gathers_more_with_time)
{
    unit_start(NULL);
    if (HAK_CACHE_CPU)
        skip(); /* others' blocks go to the caller's bin */
    size_t n = 4000;
    unsigned cls = hak_class_of(2000);
    struct hak_heap *t = unit_thread();
    hak_share_set_heaps(1);
    struct unit_block *first = unit_blocks_of_other(2000, n), *others = first->next;
    hak_share_set_heaps(20);
    hak_free(first);
    assert_in_range(t->bins[cls].remote_capacity, 1, 2);
    unit_free_blocks(others);
    assert_true(t->bins[cls].remote_capacity > 2);
    assert_true(t->counters.remote_batches < n / 2);
}

TEST(the_bound_rises_with_the_threads_and_ends)
{
    uint32_t last = 0;
    for (uint32_t threads = 2; threads < 100000; threads *= 2) {
        hak_share_set_heaps(threads);
        assert_true(HAK_LOAD_RELAXED(&hak_share_uses) >= last);
        last = HAK_LOAD_RELAXED(&hak_share_uses);
    }
    hak_share_set_heaps(UINT32_MAX);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_share_uses), last);
    hak_share_set_heaps(1);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_share_uses), 0);
    hak_share_set_heaps(0);
    assert_int_equal(HAK_LOAD_RELAXED(&hak_share_uses), 0);
}

TEST(without_memory_there_is_none)
{
    unit_start(NULL);
    struct hak_heap *t = start_among(MANY);
    unsigned cls = hak_class_of(2000);
    assert_null(hak_share_open(t, cls, false));
    struct hak_slab *slab = hak_share_open(t, cls, true);
    assert_non_null(hak_slab_take(slab, hak_share_batch(cls, 4)).head);
    hak_share_close(slab);
    assert_ptr_equal(hak_share_open(t, cls, false), slab);
    hak_share_close(slab);
}
