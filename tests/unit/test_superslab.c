/* SPDX-License-Identifier: MIT
 * Runs of pages in bitmaps: found, taken, put back, dirty and cleaned; against a naive search. */
#include "backends/shared_pool/superslab.h"

#include "unit.h"

#define PAGES ((unsigned)HAK_SUPERSLAB_PAGES)

static void start(void)
{
    unit_start("HAKMEM_RELEASE=direct"); /* one call for each range */
    assert_true(hak_init());
}

static struct superslab *map(void)
{
    struct superslab *s = hak_superslab_map(1, 1, false);
    assert_non_null(s);
    hak_superslab_offer(s);
    return s;
}

static unsigned naive_fit(uint64_t free, unsigned pages)
{
    for (unsigned i = 0; i + pages <= PAGES; i++) {
        unsigned n = 0;
        while (n < pages && free >> (i + n) & 1)
            n++;
        if (n == pages)
            return i;
    }
    return PAGES;
}

static unsigned naive_longest(uint64_t free)
{
    unsigned n = PAGES;
    while (n && naive_fit(free, n) == PAGES)
        n--;
    return n;
}

TEST(a_new_superslab_is_free_and_clean)
{
    start();
    struct superslab *s = map();
    assert_true(s->free == ALL_PAGES);
    assert_int_equal(s->dirty, 0);
    assert_int_equal(s->longest, PAGES);
    assert_int_equal((uintptr_t)s->base % HAK_SUPERSLAB, 0);
    assert_int_equal(__builtin_popcountll(ALL_PAGES), PAGES);
}

TEST(runs_of_every_length)
{
    start();
    struct superslab *s = map();
    for (unsigned pages = 1; pages <= PAGES; pages++) {
        assert_ptr_equal(hak_superslab_find(pages, false), s);
        assert_int_equal(hak_superslab_fit(s, pages), 0);
        assert_true(hak_superslab_take_at(s, 0, pages));
        assert_int_equal(s->longest, PAGES - pages);
        assert_null(hak_superslab_find(PAGES - pages + 1, false));
        if (pages < PAGES) {
            assert_int_equal(hak_superslab_fit(s, PAGES - pages), pages);
            assert_true(hak_superslab_take_at(s, pages, PAGES - pages));
            assert_int_equal(s->free, 0);
            hak_superslab_put(s, pages, PAGES - pages, false);
        }
        hak_superslab_put(s, 0, pages, false);
        assert_true(s->free == ALL_PAGES);
    }
}

TEST(any_pattern_as_a_naive_search_says)
{
    start();
    struct superslab *s = map();
    uint64_t random = 9;
    for (unsigned round = 0; round < 5000; round++) {
        unsigned first = unit_random(&random) % PAGES, pages = 1 + unit_random(&random) % (PAGES - first);
        uint64_t mask = (pages == 64 ? ~(uint64_t)0 : ((uint64_t)1 << pages) - 1) << first;
        if ((s->free & mask) == mask)
            assert_true(hak_superslab_take_at(s, first, pages));
        else if (!(s->free & mask))
            hak_superslab_put(s, first, pages, round % 2);
        else
            assert_false(hak_superslab_take_at(s, first, pages));
        assert_int_equal(s->longest, naive_longest(s->free));
        for (unsigned n = 1; n <= s->longest; n++)
            assert_int_equal(hak_superslab_fit(s, n), naive_fit(s->free, n));
        assert_int_equal(s->dirty & ~s->free, 0);
        assert_int_equal(hak_superslab_dirty_bytes(), (size_t)__builtin_popcountll(s->dirty) * HAK_PAGE);
    }
}

TEST(the_shortest_run_that_fits_is_used)
{
    start();
    struct superslab *all[4];
    for (unsigned i = 0; i < 4; i++)
        all[i] = map();
    for (unsigned i = 0; i < 4; i++) /* free runs of 1, 2, 3 and 4 pages */
        assert_true(hak_superslab_take_at(all[i], i + 1, PAGES - (i + 1)));
    for (unsigned n = 1; n <= 4; n++)
        assert_ptr_equal(hak_superslab_find(n, false), all[n - 1]);
    assert_null(hak_superslab_find(5, false));
    hak_superslab_withdraw(all[1]);
    assert_ptr_equal(hak_superslab_find(2, false), all[2]);
    hak_superslab_offer(all[1]);
    assert_ptr_equal(hak_superslab_find(2, false), all[1]);
}

TEST(pages_beyond_the_end_are_none)
{
    start();
    struct superslab *s = map();
    assert_false(hak_superslab_take_at(s, PAGES - 1, 2));
    assert_true(hak_superslab_take_at(s, PAGES - 1, 1));
}

TEST(without_memory_nothing_is_taken)
{
    start();
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_superslab_map(1, 1, false));
    fake_os_allow();
    assert_true(hak_superslab_take_at(map(), 0, 1));
}

TEST(header_superslabs_are_kept_apart)
{
    start();
    struct superslab *header = hak_superslab_map(1, 1, HAK_HEADER_LIMIT != 0);
    hak_superslab_offer(header);
    assert_ptr_equal(hak_superslab_find(1, HAK_HEADER_LIMIT != 0), header);
    assert_null(hak_superslab_find(1, HAK_HEADER_LIMIT == 0));
    hak_superslab_withdraw(header);
    assert_null(hak_superslab_find(1, HAK_HEADER_LIMIT != 0));
}

/* --- dirty pages ---------------------------------------------------------------------------------------- */

static uint64_t advised(void)
{
    return fake_os_count(HAK_OS_madvise) - hak_ledger[HAK_CAUSE_superslab_map][HAK_OS_madvise].calls;
}

TEST(dirty_pages_go_back_as_few_ranges)
{
    start();
    struct superslab *s = map();
    hak_superslab_take_at(s, 0, PAGES);
    s->base[2 * HAK_PAGE] = 1;
    hak_superslab_put(s, 0, 1, true);
    hak_superslab_put(s, 2, 2, true);
    hak_superslab_put(s, 6, 1, false);
    assert_int_equal(hak_superslab_dirty_bytes(), 3 * HAK_PAGE);
    assert_false(hak_superslab_is_zero(s, superslab_run(3, 1)));
    assert_true(hak_superslab_is_zero(s, superslab_run(6, 1)));
    assert_int_equal(hak_superslab_clean(s, HAK_CAUSE_purge), 3 * HAK_PAGE);
    assert_int_equal(advised(), 2);
    assert_int_equal(s->base[2 * HAK_PAGE], 0);
    assert_int_equal(hak_superslab_dirty_bytes(), 0);
    assert_null(hak_superslab_oldest_dirty());
    assert_int_equal(hak_superslab_clean(s, HAK_CAUSE_purge), 0);
    assert_int_equal(advised(), 2);
}

TEST(every_second_page_dirty_is_the_most_ranges)
{
    start();
    struct superslab *s = map();
    hak_superslab_take_at(s, 0, PAGES);
    for (unsigned i = 0; i < PAGES; i += 2)
        hak_superslab_put(s, i, 1, true);
    assert_int_equal(hak_superslab_clean(s, HAK_CAUSE_purge), PAGES / 2 * HAK_PAGE);
    assert_int_equal(advised(), PAGES / 2);
}

TEST(all_pages_dirty_are_one_range)
{
    start();
    struct superslab *s = map();
    hak_superslab_take_at(s, 0, PAGES);
    hak_superslab_put(s, 0, PAGES, true);
    assert_int_equal(hak_superslab_clean(s, HAK_CAUSE_purge), HAK_SUPERSLAB);
    assert_int_equal(advised(), 1);
}

TEST(taking_a_dirty_page_makes_it_no_ones_burden)
{
    start();
    struct superslab *s = map();
    hak_superslab_take_at(s, 0, 2);
    hak_superslab_put(s, 0, 2, true);
    hak_superslab_take_at(s, 0, 1);
    assert_int_equal(hak_superslab_dirty_bytes(), HAK_PAGE);
    hak_superslab_take_at(s, 1, 1);
    assert_null(hak_superslab_oldest_dirty());
}

TEST(the_longest_dirty_comes_first_and_refused_ones_last)
{
    start();
    struct superslab *a = map(), *b;
    hak_superslab_take_at(a, 0, PAGES);
    b = map();
    hak_superslab_take_at(b, 0, 1);
    hak_superslab_put(a, 3, 1, true);
    uint64_t then = a->dirty_since_ms;
    fake_os_pass(10);
    hak_superslab_put(b, 0, 1, true);
    assert_ptr_equal(hak_superslab_oldest_dirty(), a);
    assert_int_equal(b->dirty_since_ms, then + 10);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, false);
    assert_int_equal(hak_superslab_clean(a, HAK_CAUSE_purge), 0);
    assert_ptr_equal(hak_superslab_oldest_dirty(), b);
    assert_int_equal(hak_superslab_dirty_bytes(), 2 * HAK_PAGE);
    assert_int_equal(hak_superslab_clean(b, HAK_CAUSE_purge), HAK_PAGE);
    assert_int_equal(hak_superslab_clean(a, HAK_CAUSE_purge), HAK_PAGE);
    assert_null(hak_superslab_oldest_dirty());
}

TEST(a_region_is_dirty_as_a_whole)
{
    start();
    struct superslab *s = hak_superslab_map(3, 1, false);
    hak_superslab_take_whole(s);
    assert_int_equal(hak_superslab_dirty_bytes(), 0);
    hak_superslab_put_whole(s, true);
    assert_int_equal(hak_superslab_dirty_bytes(), 3 * HAK_SUPERSLAB);
    assert_int_equal(hak_superslab_clean(s, HAK_CAUSE_purge), 3 * HAK_SUPERSLAB);
    assert_int_equal(advised(), 1);
    hak_superslab_unmap(s);
}

TEST(unmapped_superslabs_are_mapped_again)
{
    start();
    struct superslab *s = hak_superslab_map(1, 1, false), *again;
    char *base = s->base;
    hak_superslab_unmap(s);
    again = hak_superslab_map(1, 1, false);
    assert_ptr_equal(again, s); /* the descriptor too */
    assert_ptr_equal(again->base, base);
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_superslab_map((size_t)1 << 40, 1, false));
}

UNIT_MAIN(T(a_new_superslab_is_free_and_clean), T(runs_of_every_length), T(any_pattern_as_a_naive_search_says),
          T(the_shortest_run_that_fits_is_used), T(pages_beyond_the_end_are_none), T(without_memory_nothing_is_taken),
          T(header_superslabs_are_kept_apart), T(dirty_pages_go_back_as_few_ranges),
          T(every_second_page_dirty_is_the_most_ranges), T(all_pages_dirty_are_one_range),
          T(taking_a_dirty_page_makes_it_no_ones_burden), T(the_longest_dirty_comes_first_and_refused_ones_last),
          T(a_region_is_dirty_as_a_whole), T(unmapped_superslabs_are_mapped_again))
