/* SPDX-License-Identifier: MIT
 * Runs of pages in bitmaps: found, taken and put back; against a naive search. */
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

static bool take(struct superslab *s, unsigned first, unsigned pages)
{
    bool zero;
    return hak_superslab_take_at(s, first, pages, false, &zero);
}

/* A bit for each dirty page. */
static uint64_t dirty(const struct superslab *s)
{
    return s->bits[HAK_DIRTY_OLD];
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
    assert_int_equal(dirty(s), 0);
    assert_int_equal(s->longest, PAGES);
    assert_int_equal((uintptr_t)s->pages.base % HAK_SUPERSLAB, 0);
    assert_int_equal(__builtin_popcountll(ALL_PAGES), PAGES);
}

TEST(runs_of_every_length)
{
    start();
    struct superslab *s = map();
    for (unsigned pages = 1; pages <= PAGES; pages++) {
        assert_ptr_equal(hak_superslab_find(pages, false), s);
        assert_int_equal(hak_superslab_fit(s, pages), 0);
        assert_true(take(s, 0, pages));
        assert_int_equal(s->longest, PAGES - pages);
        assert_null(hak_superslab_find(PAGES - pages + 1, false));
        if (pages < PAGES) {
            assert_int_equal(hak_superslab_fit(s, PAGES - pages), pages);
            assert_true(take(s, pages, PAGES - pages));
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
            assert_true(take(s, first, pages));
        else if (!(s->free & mask))
            hak_superslab_put(s, first, pages, round % 2);
        else
            assert_false(take(s, first, pages));
        assert_int_equal(s->longest, naive_longest(s->free));
        for (unsigned n = 1; n <= s->longest; n++)
            assert_int_equal(hak_superslab_fit(s, n), naive_fit(s->free, n));
        assert_int_equal(dirty(s) & ~s->free, 0);
        assert_int_equal(hak_pool_dirty.waiting, (size_t)__builtin_popcountll(dirty(s)) * HAK_PAGE);
    }
}

TEST(the_shortest_run_that_fits_is_used)
{
    start();
    struct superslab *all[4];
    for (unsigned i = 0; i < 4; i++)
        all[i] = map();
    for (unsigned i = 0; i < 4; i++) /* free runs of 1, 2, 3 and 4 pages */
        assert_true(take(all[i], i + 1, PAGES - (i + 1)));
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
    assert_false(take(s, PAGES - 1, 2));
    assert_true(take(s, PAGES - 1, 1));
}

TEST(without_memory_nothing_is_taken)
{
    start();
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_superslab_map(1, 1, false));
    fake_os_allow();
    assert_true(take(map(), 0, 1));
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

TEST(hidden_pages_are_nobodys)
{
    start();
    struct superslab *s = map();
    assert_true(take(s, 0, PAGES));
    hak_superslab_put(s, 2, 3, true);
    hak_superslab_hide(s, superslab_run(3, 1));
    assert_int_equal(s->longest, 1);
    assert_false(take(s, 3, 1));
    hak_superslab_show(s, superslab_run(3, 1));
    assert_int_equal(s->longest, 3);
    assert_true(take(s, 2, 3));
}

TEST(a_region_is_lent_as_a_whole)
{
    start();
    struct superslab *s = hak_superslab_map(3, 1, false);
    size_t held = hak_budget_held();
    assert_true(hak_superslab_take_whole(s));
    assert_int_equal(hak_budget_held(), held); /* who borrows it keeps the account */
    assert_int_equal(hak_pool_dirty.waiting, 0);
    hak_budget_take(3 * HAK_SUPERSLAB);
    hak_superslab_put_whole(s, true);
    assert_int_equal(hak_pool_dirty.waiting, 3 * HAK_SUPERSLAB);
    assert_false(hak_superslab_take_whole(s));
    assert_int_equal(hak_pool_dirty.waiting, 0);
    hak_budget_give(3 * HAK_SUPERSLAB);
    hak_superslab_put_whole(s, false);
    assert_true(s->free == ALL_PAGES);
    hak_superslab_unmap(s);
    assert_int_equal(hak_budget_held(), held);
}

TEST(unmapped_superslabs_are_mapped_again)
{
    start();
    struct superslab *s = hak_superslab_map(1, 1, false), *again;
    char *base = s->pages.base;
    hak_superslab_unmap(s);
    again = hak_superslab_map(1, 1, false);
    assert_ptr_equal(again, s); /* the descriptor too */
    assert_ptr_equal(again->pages.base, base);
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_superslab_map((size_t)1 << 40, 1, false));
}

UNIT_MAIN(T(a_new_superslab_is_free_and_clean), T(runs_of_every_length), T(any_pattern_as_a_naive_search_says),
          T(the_shortest_run_that_fits_is_used), T(pages_beyond_the_end_are_none), T(without_memory_nothing_is_taken),
          T(header_superslabs_are_kept_apart), T(hidden_pages_are_nobodys), T(a_region_is_lent_as_a_whole),
          T(unmapped_superslabs_are_mapped_again))
