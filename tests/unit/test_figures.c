/* SPDX-License-Identifier: MIT */
#include "core/process/figures.h"

#include <pthread.h>
#include <string.h>

#include "unit.h"

static uint64_t figure(enum hak_figure which)
{
    uint64_t value = 0;
    assert_int_equal(hak_figure(which, &value), 0);
    return value;
}

/* What a walk over all pages finds. */
static uint64_t walked(void)
{
    struct hak_census census;
    size_t blocks = 0, bytes = 0;
    hak_stats_census(&census);
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->count_outside)
            hak_frontends[i]->count_outside(&blocks, &bytes);
    return hak_stats_held(&census) + bytes;
}

static void *free_all(void *blocks)
{
    unit_free_blocks(blocks);
    return NULL;
}

TEST(what_is_live_is_what_a_walk_finds)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    hak_free(hak_malloc(100));
    assert_int_equal(figure(HAK_FIGURE_LIVE), walked());
    static const size_t sizes[] = {16, 1000, 5000, 30000, 100000, 3 * HAK_MIB, 80 * HAK_MIB};
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        uint64_t before = figure(HAK_FIGURE_LIVE);
        struct unit_block *kept = unit_blocks(sizes[i], 20), *freed = unit_blocks(sizes[i], 20);
        assert_int_equal(figure(HAK_FIGURE_LIVE), walked());
        assert_true(figure(HAK_FIGURE_LIVE) >= before + 40 * sizes[i]);
        unit_free_blocks(freed);
        assert_int_equal(figure(HAK_FIGURE_LIVE), walked());
        assert_in_range(figure(HAK_FIGURE_LIVE), before + 20 * sizes[i],
                        before + 20 * (sizes[i] + sizes[i] / 4 + HAK_PAGE));
        unit_free_blocks(kept);
        assert_int_equal(figure(HAK_FIGURE_LIVE), before);
    }
    void *p = hak_resize(hak_malloc(100000), 10 * HAK_MIB);
    assert_int_equal(figure(HAK_FIGURE_LIVE), walked());
    hak_free(hak_resize(p, 200000));
    assert_int_equal(figure(HAK_FIGURE_LIVE), walked());
}

/* What other threads did last may be missing. */
TEST(blocks_that_another_thread_freed_are_not_live)
{
    pthread_t thread;
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    hak_free(hak_malloc(100));
    uint64_t before = figure(HAK_FIGURE_LIVE);
    struct unit_block *blocks = unit_blocks(1000, 50000);
    assert_int_equal(pthread_create(&thread, NULL, free_all, blocks), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(figure(HAK_FIGURE_LIVE), 0, before + 2 * HAK_MIB);
    assert_in_range(figure(HAK_FIGURE_LIVE) + 2 * HAK_MIB, walked(), walked() + 4 * HAK_MIB);
}

TEST(retained_memory_has_a_reason)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    struct unit_block *blocks = unit_blocks(1000, 50000);
    uint64_t peak = figure(HAK_FIGURE_PEAK);
    assert_true(peak >= 50000 * 1000 && peak <= figure(HAK_FIGURE_MAPPED));
    for (unsigned i = 0; i < 2; i++) {
        uint64_t sum =
            figure(HAK_FIGURE_LIVE) + figure(HAK_FIGURE_BINS) + figure(HAK_FIGURE_SLACK) + figure(HAK_FIGURE_DIRTY);
        assert_int_equal(sum, hak_budget_held());
        if (blocks)
            unit_free_blocks(blocks);
        blocks = NULL;
    }
    hak_trim(0);
    hak_trim(0);
    assert_true(figure(HAK_FIGURE_DIRTY) <= HAK_MIB);
    assert_true(figure(HAK_FIGURE_PEAK) >= peak);
    assert_true(figure(HAK_FIGURE_METADATA) > 0 && figure(HAK_FIGURE_THREADS) >= 1);
    uint64_t value;
    assert_int_equal(hak_figure(HAK_NFIGURES, &value), -EINVAL);
}

/* --- the hard limit ---------------------------------------------------------------------------------------- */

static unsigned calls;
static void *reserve;

static int give_reserve(size_t wanted, void *context)
{
    assert_true(wanted > 0 && context == &calls);
    calls++;
    void *had = reserve;
    reserve = NULL;
    hak_free(had);
    return had != NULL;
}

static const size_t limit_sizes[] = {64, 20000, 300000, 65 * HAK_MIB};

TEST_EACH(beyond_the_hard_limit_requests_fail, limit_sizes)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    hak_limit_hard(100 * HAK_MIB, NULL, NULL);
    struct unit_block *blocks = NULL, *block;
    size_t got = 0;
    errno = 0;
    while (got < 200 * HAK_MIB && (block = hak_malloc(*row))) {
        memset(block, 1, *row);
        block->next = blocks;
        blocks = block;
        got += *row;
    }
    assert_int_equal(errno, ENOMEM);
    assert_in_range(got, 60 * HAK_MIB, 100 * HAK_MIB);
    assert_true(hak_budget_held() <= 110 * HAK_MIB); /* untouched ends of blocks do not count */
    assert_null(hak_alloc_zeroed(101 * HAK_MIB));
    if (*row > HAK_SMALL_MAX)
        assert_null(hak_resize(blocks, 101 * HAK_MIB));
    unit_free_blocks(blocks);
    void *p = hak_malloc(60 * HAK_MIB); /* what is idle goes back first */
    assert_non_null(p);
    hak_limit_hard(0, NULL, NULL);
    hak_free(hak_malloc(101 * HAK_MIB));
    hak_free(p);
}

TEST(the_program_is_asked_before_a_request_fails)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    reserve = memset(hak_malloc(50 * HAK_MIB), 1, 50 * HAK_MIB);
    hak_limit_hard(80 * HAK_MIB, give_reserve, &calls);
    char *p = hak_malloc(60 * HAK_MIB);
    assert_non_null(p);
    memset(p, 1, 60 * HAK_MIB);
    assert_int_equal(calls, 1);
    assert_null(hak_malloc(60 * HAK_MIB));
    assert_int_equal(calls, 2);
    hak_free(p);
}

/* --- in place ------------------------------------------------------------------------------------------------ */

TEST(expand_moves_nothing)
{
    static const size_t sizes[] = {100, 5000, 100000, 3 * HAK_MIB, 80 * HAK_MIB};
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        char *p = hak_malloc(sizes[i]);
        size_t usable = unit_usable(p);
        assert_true(usable >= hak_good_size(sizes[i]));
        assert_true(hak_expand(p, usable) && hak_expand(p, 1));
        assert_int_equal(unit_usable(p), usable);
        memset(p, 1, usable);
        if (hak_expand(p, 2 * usable)) {
            assert_true(unit_usable(p) >= 2 * usable && usable > HAK_SMALL_MAX);
            memset(p, 1, 2 * usable);
        } else {
            assert_int_equal(unit_usable(p), usable);
        }
        assert_false(hak_expand(p, (size_t)PTRDIFF_MAX + 1));
        hak_free(p);
    }
    assert_int_equal(figure(HAK_FIGURE_LIVE), walked());
}
