/* SPDX-License-Identifier: MIT
 * Spans as large blocks see them, and in the statistics of the large frontend. */
#include <string.h>
#include <sys/mman.h>

#include "core/plugin.h"
#include "frontends/large/spans.h"
#include "unit.h"

static uint64_t large(const char *key)
{
    return unit_stat("large", key);
}

/* That were ever mapped. */
static uint64_t superslabs(void)
{
    return unit_stat("page_heap", "superslabs_mapped");
}

static char *take(size_t size)
{
    char *p = hak_malloc(size);
    assert_non_null(p);
    assert_non_null(hak_space_slab(p));
    return memset(p, 1, size);
}

#define NO_CACHE "HAKMEM_ACE_CACHE_MB=0 HAKMEM_ACE_WASTE_PCT=0"

TEST(each_length_has_a_class_that_wastes_little)
{
    for (unsigned pages = 1; pages <= 4 * SPAN_MAX_PAGES; pages++) {
        unsigned most = hak_span_rounded(pages);
        assert_in_range(most, pages, pages + pages / 8);
        assert_int_equal(hak_span_rounded(most), most);
        assert_true(pages > 16 || most == pages);
        assert_true(pages > SPAN_MAX_PAGES || most <= SPAN_MAX_PAGES);
    }
}

TEST(superslabs_that_serve_again_are_not_looked_at)
{
    unit_start(NO_CACHE);
    hak_free(take(30 * HAK_MIB));
    uint64_t mapped = superslabs();
    for (unsigned i = 0; i < 3; i++) {
        hak_trim(0);
        hak_free(take(30 * HAK_MIB));
    }
    assert_int_equal(superslabs(), mapped);
    assert_int_equal(hak_ledger[HAK_CAUSE_huge_page][HAK_OS_mincore].calls, 0);
}

static const size_t lengths[] = {HAK_PAGE, 5 * HAK_PAGE, 40 * HAK_PAGE};

TEST_EACH(the_span_that_was_freed_last_serves_again, lengths)
{
    unit_start(NULL);
    unit_needs_delay();
    for (unsigned i = 0; i < 2; i++)
        hak_free(take(*row)); /* afterwards it is known how much may stay dirty */
    char *p = take(*row);
    hak_free(p);
    size_t length = large("cached_bytes");
    assert_in_range(length, *row, *row + *row / 16);
    assert_true(!hak_space_slab(p) || hak_slab_state(hak_space_slab(p)) == HAK_SLAB_UNUSED); /* it is no block */
    assert_int_equal(unit_census().live_large, 0);
    assert_dies(hak_free(p), "free");
    uint64_t hits = large("cache_hits");
    assert_ptr_equal(take(*row), p);
    assert_int_equal(large("cache_hits"), hits + 1);
    hak_free(p);
    fake_os_pass(hak_options.purge_delay_ms - 1);
    hak_purge_tick();
    assert_int_equal(large("cached_bytes"), length);
    fake_os_pass(10);
    hak_purge_tick(); /* no request took it */
    assert_int_equal(large("cached_bytes"), 0);
    assert_int_equal(large("cache_evicted"), 1);
}

TEST(a_pair_of_large_blocks_takes_no_lock)
{
    unit_start(NULL);
    unit_needs_delay();
    for (size_t size = 100000; size < 4 * HAK_MIB; size *= 6) {
        for (unsigned i = 0; i < 3; i++)
            hak_free(hak_malloc(size));
        uint64_t before = unit_stat("page_heap", "lock_taken");
        for (unsigned i = 0; i < 1000; i++)
            hak_free(hak_malloc(size + i));
        assert_in_range(unit_stat("page_heap", "lock_taken") - before, 0, 20); /* ticks, and the statistics */
    }
}

TEST(the_pages_of_the_span_that_was_freed_last_serve_longer_blocks)
{
    unit_start(NULL);
    unit_needs_delay();
    for (unsigned i = 0; i < 2; i++)
        hak_free(take(40 * HAK_PAGE));
    char *p = take(40 * HAK_PAGE);
    hak_free(p);
    assert_true(large("cached_bytes") > 0);
    uint64_t mapped = superslabs();
    assert_ptr_equal(take(60 * HAK_PAGE), p);
    assert_int_equal(superslabs(), mapped);
    assert_int_equal(large("cached_bytes"), 0);
}

/* The last one of the length, and others up to the bound. */
TEST(so_many_spans_of_a_length_wait)
{
    enum { N = 20, SIZE = 3 * 65536, MOST = 5 };
    char *p[N];
    unit_start("HAKMEM_ACE_CACHE_MB=1");
    unit_needs_delay();
    for (unsigned i = 0; i < N; i++)
        p[i] = take(SIZE);
    uint64_t hits = large("cache_hits");
    for (unsigned i = 0; i < N; i++)
        hak_free(p[i]);
    assert_int_equal(large("cached_bytes"), (MOST + 1) * SIZE);
    assert_int_equal(large("cache_over_budget"), N - MOST - 1);
    for (unsigned i = 0; i < N; i++)
        p[i] = take(SIZE);
    assert_int_equal(large("cache_hits"), hits + MOST + 1);
    for (unsigned i = 0; i < 2; i++)
        hak_free(p[i]);
    fake_os_pass(hak_options.purge_delay_ms + 10);
    hak_purge_tick(); /* no request took them */
    assert_int_equal(large("cached_bytes"), 0);
    assert_int_equal(large("cache_evicted"), 2);
    assert_int_equal(large("live_bytes"), (N - 2) * SIZE);
}

TEST(rounding_wastes_no_more_than_asked)
{
    unit_start("HAKMEM_ACE_WASTE_PCT=6");
    struct hak_slab *slab = hak_space_slab(take(35 * HAK_PAGE)); /* its class has 36 */
    assert_int_equal(slab->pages, 36);
    assert_int_equal(large("rounded"), 1);
    slab = hak_space_slab(take(33 * HAK_PAGE)); /* 3 of 36 is more than 6 % */
    assert_int_equal(slab->pages, 33);
    assert_int_equal(large("rounded"), 1);
}

TEST(only_old_content_is_cleared)
{
    unit_start(NO_CACHE);
    char *old = take(10 * HAK_PAGE), *between = take(HAK_PAGE);
    hak_free(old);
    char *p = hak_alloc_zeroed(20 * HAK_PAGE);
    for (size_t i = 0; i < 20 * HAK_PAGE; i++)
        assert_int_equal(p[i], 0);
    char *q = hak_alloc_zeroed(10 * HAK_PAGE);
    for (size_t i = 0; i < 10 * HAK_PAGE; i++)
        assert_int_equal(q[i], 0);
    hak_free(between);
    /* Fresh pages are not touched. */
    unsigned char resident[8 * 65536 / 4096];
    char *fresh = hak_alloc_zeroed(8 * HAK_PAGE);
    assert_int_equal(mincore(fresh, 8 * HAK_PAGE, resident), 0);
    for (unsigned i = 0; i < COUNT(resident); i++)
        assert_false(resident[i] & 1);
}

TEST(a_block_grows_where_it_is)
{
    unit_start(NO_CACHE);
    char *p = take(HAK_PAGE);
    char *q = hak_resize(p, 8 * HAK_PAGE);
    assert_ptr_equal(q, p);
    assert_int_equal(unit_usable(p), 8 * HAK_PAGE);
    assert_int_equal(large("grown_in_place"), 1);
    p[8 * HAK_PAGE - 1] = 1;
    assert_ptr_equal(hak_resize(p, 2 * HAK_PAGE), p); /* what it leaves serves others */
    assert_null(hak_space_slab(p + 3 * HAK_PAGE));    /* and is no block until then */
    assert_int_equal(large("live_bytes"), 2 * HAK_PAGE);
    assert_ptr_equal(take(3 * HAK_PAGE), p + 2 * HAK_PAGE);
    assert_ptr_not_equal(q = hak_resize(p, 4 * HAK_PAGE), p);
    assert_int_equal(q[0], 1);
    hak_free(q);
}

static const struct {
    size_t size, touched, huge;
    unsigned n;
} uses[] = {{HAK_MIB, HAK_MIB, 8 * HAK_MIB, 40}, {HAK_MIB, 1, 0, 40}, {30 * HAK_MIB, 0, 0, 3}};

TEST_EACH(huge_pages_where_all_is_touched_and_nowhere_else, uses)
{
    unit_start(NULL);
    for (unsigned i = 0; i < row->n; i++)
        memset(hak_malloc(row->size), 1, row->touched);
    if (row->huge)
        assert_true(fake_os_huge_bytes() >= row->huge);
    else
        assert_int_equal(fake_os_huge_bytes(), 0);
    assert_true(unit_looks() > 0);
    assert_true(!row->huge || unit_looks() <= unit_stat("lru", "misses"));
}

TEST(long_and_short_blocks_are_judged_apart)
{
    unit_start(NULL);
    for (unsigned i = 0; i < 40; i++)
        take(HAK_MIB);
    size_t huge = fake_os_huge_bytes();
    for (unsigned i = 0; i < 10; i++)
        *(char *)hak_malloc(30 * HAK_MIB) = 1;
    assert_int_equal(fake_os_huge_bytes(), huge);
    uint64_t mapped = superslabs();
    while (superslabs() == mapped) /* what was mapped with the long ones serves first */
        take(HAK_MIB);
    assert_true(fake_os_huge_bytes() > huge);
}

TEST(a_span_of_the_exact_length_serves_where_none_has_that_of_the_class)
{
    unit_start("HAKMEM_ACE_CACHE_MB=0");
    unit_needs_delay();
    char *p = hak_alloc_aligned(2 * HAK_PAGE, 35 * HAK_PAGE); /* not rounded to its class, which has 36 */
    while (large("live_bytes") < superslabs() * HAK_SUPERSLAB)
        take(HAK_PAGE);
    uint64_t mapped = superslabs();
    assert_int_equal(hak_space_slab(p)->pages, 35);
    hak_free(p);
    assert_ptr_equal(take(35 * HAK_PAGE), p);
    assert_int_equal(superslabs(), mapped);
    assert_int_equal(large("live_bytes"), mapped * HAK_SUPERSLAB);
}

TEST(a_growing_block_moves_to_where_it_and_the_block_before_it_can_grow)
{
    unit_start(NO_CACHE);
    char *p = take(HAK_PAGE), *behind = take(HAK_PAGE);
    uint64_t mapped = superslabs();
    p = hak_resize(p, 4 * HAK_PAGE);
    assert_ptr_equal(p, behind + 5 * HAK_PAGE);
    assert_int_equal(superslabs(), mapped);
}

/* Each step of 64 KiB would move each buffer, if they stood side by side. */
TEST(buffers_that_grow_in_turn_move_seldom)
{
    enum { BUFFERS = 8, STEPS = 16 };
    char *p[BUFFERS];
    unsigned moves = 0;
    unit_start(NO_CACHE);
    for (unsigned i = 0; i < BUFFERS; i++)
        p[i] = take(HAK_PAGE);
    for (unsigned n = 2; n <= STEPS; n++)
        for (unsigned i = 0; i < BUFFERS; i++) {
            char *q = hak_resize(p[i], n * HAK_PAGE);
            moves += q != p[i];
            p[i] = q;
        }
    assert_in_range(moves, BUFFERS, 8 * BUFFERS); /* in 120 steps; where they begin is random */
    for (unsigned i = 0; i < BUFFERS; i++)
        hak_free(p[i]);
}
