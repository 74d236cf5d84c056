/* SPDX-License-Identifier: MIT
 * The account of dirty pages against a naive one, its charges and its queue; and purges: what goes, what is refused,
 * what may wait. */
#include "core/pages/dirty.h"

#include <string.h>

#include "core/parts/purge.h"
#include "core/os/huge_page.h"
#include "core/pages/budget.h"
#include "unit.h"

#define PAGES 200u
#define DELAY 100u

static struct hak_dirty_queue queue = {.unwanted_per_ms = HAK_DIRTY_UNWANTED_PER_MS};
static struct region {
    struct hak_dirty pages;
    uint64_t bits[HAK_DIRTY_WORDS(PAGES)];
    char state[PAGES]; /* as the owner sees it: taken, free, or nobody's */
} a, b;
static char *base;

enum { FREE, TAKEN, CLAIMED };

static void set(struct region *r, unsigned first, unsigned n, char from, char to)
{
    for (unsigned i = first; i < first + n; i++) {
        assert_int_equal(r->state[i], from);
        r->state[i] = to;
    }
}

static bool claim(struct hak_dirty *d, unsigned first, unsigned n)
{
    set((struct region *)d, first, n, FREE, CLAIMED);
    return true;
}

static void settle(struct hak_dirty *d, unsigned first, unsigned n)
{
    set((struct region *)d, first, n, CLAIMED, FREE);
}

static enum hak_cause cause_of(const struct hak_dirty *d)
{
    return d == &b.pages ? HAK_PURGE_NOT_NOW : HAK_CAUSE_purge;
}

static HAK_LOCK(lock, HAK_RANK_FRONTEND);
static HAK_LOCK(purging, HAK_RANK_PURGE);
static struct hak_purger purger = {
    .queue = &queue,
    .lock = &lock,
    .purging = &purging,
    .claim = claim,
    .settle = settle,
    .cause = cause_of,
};

/* Both regions lie in memory that the kernel knows. */
static void start(const char *settings, size_t unit)
{
    unit_start(settings);
    assert_true(hak_init());
    base = hak_space_alloc(hak_align_up(2 * PAGES * unit, HAK_SUPERSLAB) / HAK_SUPERSLAB, 1, false);
    assert_non_null(base);
    hak_dirty_open(&a.pages, &queue, base, PAGES, unit, a.bits);
    hak_dirty_open(&b.pages, &queue, base + PAGES * unit, PAGES, unit, b.bits);
}

static bool take(struct region *r, unsigned first, unsigned n)
{
    set(r, first, n, FREE, TAKEN);
    return hak_dirty_take(&r->pages, first, n, false);
}

static void put(struct region *r, unsigned first, unsigned n)
{
    set(r, first, n, TAKEN, FREE);
    hak_dirty_put(&r->pages, first, n, true);
}

static void dirty(struct region *r, unsigned first, unsigned n)
{
    take(r, first, n);
    put(r, first, n);
}

static void delay(void)
{
    if (hak_parts.release->at_once)
        skip();
}

/* --- the account ------------------------------------------------------------------------------------- */

TEST(a_random_life_as_a_naive_account_says)
{
    enum { OTHER, OLD };
    static char old[PAGES];
    uint64_t random = 5;
    start(NULL, HAK_PAGE);
    size_t held = hak_budget_held();
    for (unsigned round = 0; round < 20000; round++) {
        unsigned first = (unsigned)(unit_random(&random) % PAGES), n = 1, charged = 0, waiting = 0;
        unsigned most = 1 + (unsigned)(unit_random(&random) % (PAGES - first));
        char state = a.state[first];
        while (n < most && a.state[first + n] == state && (state == TAKEN || old[first + n] == old[first]))
            n++;
        bool was_old = old[first];
        if (state == TAKEN) {
            put(&a, first, n);
            memset(old + first, OLD, n);
        } else if (was_old && round % 3 == 0) {
            hak_dirty_claim(&a.pages, first, n);
            hak_dirty_settle(&a.pages, first, n, true, HAK_CAUSE_purge);
            memset(old + first, OTHER, n);
        } else {
            assert_int_equal(take(&a, first, n), !was_old);
            memset(old + first, OTHER, n);
        }
        for (unsigned i = 0; i < PAGES; i++) {
            waiting += old[i];
            charged += old[i] || a.state[i] == TAKEN;
        }
        assert_int_equal(queue.waiting, waiting * HAK_PAGE);
        assert_int_equal(hak_budget_held() - held, charged * HAK_PAGE);
        assert_int_equal(hak_dirty_count(&a.pages, 0, PAGES), waiting);
        assert_ptr_equal(queue.first, waiting ? &a.pages : NULL);
    }
}

TEST(a_unit_is_as_long_as_the_owner_says)
{
    start(NULL, 3 * HAK_PAGE);
    size_t held = hak_budget_held();
    take(&a, 10, 2);
    assert_int_equal(hak_budget_held() - held, 6 * HAK_PAGE);
    put(&a, 10, 2);
    assert_int_equal(queue.waiting, 6 * HAK_PAGE);
    assert_true(hak_purge_trim(&purger, 0) == 6 * HAK_PAGE);
    assert_int_equal(hak_budget_held(), held);
}

TEST(pages_that_read_as_zero_need_not_be_charged)
{
    start(NULL, HAK_PAGE);
    size_t held = hak_budget_held();
    assert_true(hak_dirty_take(&a.pages, 0, PAGES, true));
    assert_int_equal(hak_budget_held(), held);
    hak_dirty_put(&a.pages, 0, PAGES, false);
    assert_int_equal(hak_budget_held(), held);
    take(&a, 0, 2);
    put(&a, 0, 2);
    assert_false(hak_dirty_take(&a.pages, 0, PAGES, true)); /* not zero: all are */
    assert_int_equal(hak_budget_held() - held, PAGES * HAK_PAGE);
    hak_dirty_put(&a.pages, 0, PAGES, true);
    assert_int_equal(hak_purge_trim(&purger, 0), PAGES * HAK_PAGE);
    assert_int_equal(hak_budget_held(), held);
    assert_int_equal(queue.waiting, 0);
}

TEST(pages_that_were_never_taken_can_become_dirty)
{
    start(NULL, HAK_PAGE);
    size_t held = hak_budget_held();
    take(&a, 3, 2);
    put(&a, 3, 2);
    hak_dirty_soil(&a.pages);
    assert_int_equal(queue.waiting, PAGES * HAK_PAGE);
    assert_int_equal(hak_budget_held() - held, PAGES * HAK_PAGE);
    assert_int_equal(hak_purge_trim(&purger, 0), PAGES * HAK_PAGE);
    hak_dirty_soil(&a.pages); /* what went back is not there */
    assert_int_equal(queue.waiting, 0);
    assert_int_equal(hak_budget_held(), held);
}

TEST(what_goes_too_soon_is_regretted_under_its_cause)
{
    start(NULL, HAK_PAGE);
    dirty(&a, 0, 10);
    hak_purge_trim(&purger, 0);
    struct hak_ledger_entry *e = hak_ledger[HAK_CAUSE_trim];
    fake_os_pass(HAK_REGRET_MS - 1);
    assert_true(take(&a, 3, 4));
    assert_int_equal(e[HAK_OS_madvise].regret_bytes + e[HAK_OS_process_madvise].regret_bytes, 4 * HAK_PAGE);
    fake_os_pass(1);
    take(&a, 0, 3);
    assert_int_equal(e[HAK_OS_madvise].regret_bytes + e[HAK_OS_process_madvise].regret_bytes, 4 * HAK_PAGE);
}

/* --- purges ------------------------------------------------------------------------------------------ */

TEST(idle_is_what_was_dirty_at_the_last_check)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    hak_purge_tick_of(&purger, hak_clock_ms());
    dirty(&a, 0, 10);
    take(&a, 50, 10);
    for (unsigned i = 0; i < 2; i++) { /* checked once; the other run comes and goes */
        fake_os_pass(DELAY / 2);
        put(&a, 50, 10);
        hak_purge_tick_of(&purger, hak_clock_ms());
        take(&a, 50, 10);
    }
    assert_int_equal(queue.waiting, 10 * HAK_PAGE);
    put(&a, 50, 10);
    for (unsigned i = 0; i < 2; i++) {
        fake_os_pass(DELAY / 2);
        take(&a, 50, 10);
        put(&a, 50, 10);
        hak_purge_tick_of(&purger, hak_clock_ms());
    }
    assert_int_equal(queue.waiting, 10 * HAK_PAGE);
    assert_int_equal(hak_dirty_count(&a.pages, 50, 10), 10);
    assert_int_equal(hak_dirty_count(&a.pages, 0, 10), 0);
}

TEST(a_region_may_be_spared_but_from_a_trim)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    dirty(&b, 0, 10);
    dirty(&a, 0, 10);
    fake_os_pass(DELAY);
    hak_purge_tick_of(&purger, hak_clock_ms());
    assert_int_equal(hak_dirty_count(&a.pages, 0, PAGES), 0);
    assert_int_equal(hak_dirty_count(&b.pages, 0, PAGES), 10);
    assert_int_equal(hak_purge_trim(&purger, 0), 10 * HAK_PAGE);
}

TEST(a_trim_keeps_what_it_is_told_to)
{
    start(NULL, HAK_PAGE);
    dirty(&a, 0, 150);
    assert_int_equal(hak_purge_trim(&purger, 100 * HAK_PAGE), 50 * HAK_PAGE);
    assert_int_equal(queue.waiting, 100 * HAK_PAGE);
    assert_int_equal(hak_purge_trim(&purger, SIZE_MAX), 0);
}

TEST(one_locked_page_stays_and_those_around_it_go)
{
    start(NULL, HAK_PAGE);
    dirty(&a, 0, PAGES);
    fake_os_lock_page(base + 77 * HAK_PAGE + 4096);
    assert_int_equal(hak_purge_trim(&purger, 0), (PAGES - 1) * HAK_PAGE);
    assert_int_equal(queue.refused, HAK_PAGE);
    assert_int_equal(queue.waiting, 0);
    assert_int_equal(hak_dirty_count(&a.pages, 77, 1), 1);
    assert_int_equal(hak_purge_trim(&purger, 0), 0); /* asked again, and refused again */
    fake_os_allow();
    assert_false(take(&a, 77, 1)); /* its content is old */
    assert_int_equal(queue.refused, 0);
    put(&a, 77, 1);
    assert_int_equal(hak_purge_trim(&purger, 0), HAK_PAGE);
}

TEST(where_all_is_refused_a_purge_ends_and_asks_again_later)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    dirty(&a, 0, PAGES);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    fake_os_refuse(HAK_OS_process_madvise, 1, EINVAL, true);
    assert_int_equal(hak_purge_trim(&purger, 0), 0);
    assert_int_equal(queue.refused, PAGES * HAK_PAGE);
    uint64_t calls = fake_os_total();
    for (unsigned i = 0; i < 10; i++) { /* neither ticks nor frees spin on it */
        fake_os_pass(DELAY);
        hak_purge_tick_of(&purger, hak_clock_ms());
        hak_purge_due(&purger, 0);
    }
    assert_int_equal(fake_os_total(), calls);
    fake_os_allow();
    fake_os_pass(10000);
    while (hak_purge_tick_of(&purger, hak_clock_ms()))
        ;
    assert_int_equal(queue.refused, 0);
    assert_int_equal(queue.waiting, 0);
}

TEST(calls_done_in_part_count_for_what_they_did)
{
    start(NULL, HAK_PAGE);
    if (hak_parts.release->at_once)
        skip();
    for (unsigned i = 0; i < 20; i++)
        dirty(&a, 2 * i, 1);
    fake_os_vector(0, 7);
    assert_int_equal(hak_purge_trim(&purger, 0), 20 * HAK_PAGE);
    assert_int_equal(queue.waiting + queue.refused, 0);
}

/* --- huge pages, of 32 pages each ---------------------------------------------------------------------- */

#define HUGE (HAK_HUGE_PAGE / HAK_PAGE)

static uint64_t kept_small(void)
{
    return unit_stat("huge_pages", "kept_small");
}

static void purge_all(unsigned first, unsigned n)
{
    dirty(&a, first, n);
    hak_purge_trim(&purger, 0);
    assert_int_equal(queue.waiting, 0);
}

/* The page at which one begins. */
static unsigned first_huge_page(void)
{
    return (unsigned)((hak_align_up((uintptr_t)base + 1, HAK_HUGE_PAGE) - (uintptr_t)base) / HAK_PAGE);
}

TEST(the_rest_of_a_huge_page_is_to_stay_small)
{
    start("HAKMEM_THP=always", HAK_PAGE);
    unsigned begin = first_huge_page();
    purge_all(begin, 2 * HUGE); /* whole ones */
    assert_int_equal(kept_small(), 0);
    purge_all(begin + 3, 5);
    assert_int_equal(kept_small(), 1);
    purge_all(begin + 1, 2); /* of the same one */
    purge_all(begin, HUGE);
    assert_int_equal(kept_small(), 1);
    purge_all(begin + HUGE + 1, 2 * HUGE); /* its ends lie in two */
    assert_int_equal(kept_small(), 3);
    purge_all(begin + HUGE - 1, 2);
    assert_int_equal(kept_small(), 3);
}

/* Where the region begins or ends within it, no more than the region. */
TEST(what_is_to_stay_small_is_the_regions)
{
    start("HAKMEM_THP=always", HAK_PAGE);
    char *huge = (char *)hak_align_up((uintptr_t)base + 1, HAK_HUGE_PAGE), *begin = huge - 3 * HAK_PAGE;
    hak_dirty_open(&a.pages, &queue, begin, HUGE + 5, HAK_PAGE, a.bits);
    purge_all(1, 1);
    assert_ptr_equal(fake_os_kept_small().iov_base, begin);
    assert_int_equal(fake_os_kept_small().iov_len, 3 * HAK_PAGE);
    purge_all(3, HUGE + 1);
    assert_ptr_equal(fake_os_kept_small().iov_base, huge + HAK_HUGE_PAGE);
    assert_int_equal(fake_os_kept_small().iov_len, 2 * HAK_PAGE);
    purge_all(4, 1);
    assert_ptr_equal(fake_os_kept_small().iov_base, huge);
    assert_int_equal(fake_os_kept_small().iov_len, HAK_HUGE_PAGE);
    assert_int_equal(kept_small(), 3);
}

TEST(of_a_long_region_the_first_64_huge_pages_are_remembered)
{
    struct hak_dirty d = {.base = (char *)HAK_HUGE_PAGE, .unit = HAK_HUGE_PAGE / 2};
    assert_int_equal(hak_dirty_tear(&d, 2 * 63 + 1, 2), (uint64_t)1 << 63);
    assert_int_equal(hak_dirty_tear(&d, 2 * 63 + 1, 1), 0);
    assert_int_equal(hak_dirty_tear(&d, 2 * 64 + 1, 1), 0);
    assert_int_equal(hak_dirty_tear(&d, 1, 2 * 64), 1);
}

/* Whose mappings would be too many. */
TEST(a_very_large_heap_is_let_be)
{
    start("HAKMEM_THP=always", HAK_PAGE);
    size_t superslabs = 64 * HAK_GIB / HAK_SUPERSLAB;
    void *much = hak_space_alloc(superslabs, 1, false);
    if (!much)
        skip(); /* a small machine */
    purge_all(3, 5);
    assert_int_equal(kept_small(), 0);
    hak_space_free(much, superslabs, HAK_CAUSE_trim);
    purge_all(first_huge_page() + HUGE + 3, 5);
    assert_int_equal(kept_small(), 1);
}

TEST(nothing_is_said_where_there_are_no_huge_pages)
{
    start("HAKMEM_THP=never", HAK_PAGE);
    purge_all(3, 5);
    assert_int_equal(kept_small(), 0);
}

/* --- what may wait ----------------------------------------------------------------------------------- */

static size_t allowance(void)
{
    return hak_purge_allowance(&purger);
}

TEST(what_was_wanted_may_wait)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    size_t least = allowance();
    assert_int_equal(least, DELAY * HAK_DIRTY_UNWANTED_PER_MS);
    dirty(&a, 0, 150);
    assert_int_equal(allowance(), least);
    assert_true(hak_purge_is_due(&purger)); /* nobody came for it */
    take(&a, 0, 150);
    assert_int_equal(allowance(), least + 150 * HAK_PAGE);
    put(&a, 0, 150);
    assert_false(hak_purge_is_due(&purger));
    for (unsigned i = 0; i < 3; i++, allowance())
        fake_os_pass(DELAY + 1);
    assert_int_equal(allowance(), least);
}

TEST(coming_and_going_wants_no_more_than_it_takes)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    size_t least = allowance();
    for (unsigned i = 0; i < 1000; i++)
        dirty(&a, 0, 10);
    assert_int_equal(allowance(), least + 10 * HAK_PAGE);
}

TEST(regret_lets_more_wait_and_fades)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    size_t least = allowance();
    dirty(&a, 0, 100);
    hak_purge_due(&purger, 0);
    assert_int_equal(queue.waiting, 0);
    take(&a, 0, 100);
    size_t more = allowance();
    assert_true(more >= least + 100 * HAK_PAGE);
    for (unsigned i = 0; i < 8; i++) {
        fake_os_pass(DELAY + 1);
        size_t now = allowance();
        assert_true(now < more);
        more = now;
    }
    fake_os_pass(100 * DELAY);
    assert_int_equal(allowance(), least);
}

/* --- clocks ------------------------------------------------------------------------------------------ */

TEST(with_a_long_delay_nothing_goes_whatever_the_clock_says)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000", HAK_PAGE);
    delay();
    uint64_t now = hak_clock_ms(), random = 3;
    for (unsigned i = 0; i < 1000; i++) { /* readings of other threads, up to a second apart */
        unsigned first = (unsigned)(unit_random(&random) % PAGES);
        if (a.state[first] == FREE)
            take(&a, first, 1);
        else
            put(&a, first, 1);
        assert_false(hak_purge_tick_of(&purger, now + unit_random(&random) % 1000 - 500));
        assert_true(!queue.first || !hak_purge_is_due(&purger));
    }
    assert_int_equal(unit_cause_calls(HAK_CAUSE_purge), 0);
}

TEST(a_leap_of_the_clock_purges_and_harms_nothing)
{
    start("HAKMEM_PURGE_DELAY_MS=100", HAK_PAGE);
    delay();
    dirty(&a, 0, 20);
    hak_purge_tick_of(&purger, hak_clock_ms());
    hak_purge_tick_of(&purger, hak_clock_ms() + 1000000000);
    assert_int_equal(queue.waiting, 0);
    dirty(&a, 0, 20);
    hak_purge_tick_of(&purger, hak_clock_ms()); /* back again: what is dirty is new */
    fake_os_pass(DELAY);
    hak_purge_tick_of(&purger, hak_clock_ms());
    assert_int_equal(queue.waiting, 0);
}

/* Its sets lie one behind the other. */
TEST(a_run_ends_with_the_region)
{
    enum { N = 128 };
    start(NULL, HAK_PAGE);
    static uint64_t bits[HAK_DIRTY_WORDS(N)];
    struct hak_dirty d;
    struct hak_dirty_choice all = {.all = true};
    hak_dirty_open(&d, &queue, base, N, HAK_PAGE, bits);
    hak_dirty_take(&d, 0, N, false);
    hak_dirty_put(&d, 0, 1, true);
    hak_dirty_checked(&d, hak_clock_ms());
    hak_dirty_put(&d, N - 2, 2, true);
    unsigned first = 1;
    assert_int_equal(hak_dirty_run(&d, &first, all), 2);
    assert_int_equal(first, N - 2);
    first = N;
    assert_int_equal(hak_dirty_run(&d, &first, all), 0);
}

TEST(a_run_is_found_at_the_begin_of_a_word)
{
    struct hak_dirty_choice all = {.all = true};
    start(NULL, HAK_PAGE);
    for (unsigned page = 64; page < PAGES; page += 64) {
        unsigned first = 0;
        dirty(&a, page, 1);
        assert_int_equal(hak_dirty_run(&a.pages, &first, all), 1);
        assert_int_equal(first, page);
        take(&a, page, 1);
    }
}

/* However short the run is. */
TEST(beside_a_refused_page_its_neighbour_goes)
{
    start(NULL, HAK_PAGE);
    for (unsigned n = 2; n <= 5; n++)
        for (unsigned locked = 0; locked < n; locked++) {
            dirty(&a, 10, n);
            fake_os_lock_page(base + (10 + locked) * HAK_PAGE);
            assert_int_equal(hak_purge_trim(&purger, 0), (n - 1) * HAK_PAGE);
            assert_int_equal(queue.refused, HAK_PAGE);
            fake_os_unlock_pages();
            assert_int_equal(hak_purge_trim(&purger, 0), HAK_PAGE);
        }
}

UNIT_MAIN(T(the_rest_of_a_huge_page_is_to_stay_small), T(what_is_to_stay_small_is_the_regions),
          T(of_a_long_region_the_first_64_huge_pages_are_remembered), T(a_very_large_heap_is_let_be),
          T(nothing_is_said_where_there_are_no_huge_pages),
          T(beside_a_refused_page_its_neighbour_goes), T(a_run_ends_with_the_region),
          T(a_run_is_found_at_the_begin_of_a_word), T(a_random_life_as_a_naive_account_says),
          T(a_unit_is_as_long_as_the_owner_says), T(pages_that_read_as_zero_need_not_be_charged),
          T(pages_that_were_never_taken_can_become_dirty), T(what_goes_too_soon_is_regretted_under_its_cause), T(idle_is_what_was_dirty_at_the_last_check),
          T(a_region_may_be_spared_but_from_a_trim), T(a_trim_keeps_what_it_is_told_to),
          T(one_locked_page_stays_and_those_around_it_go), T(where_all_is_refused_a_purge_ends_and_asks_again_later),
          T(calls_done_in_part_count_for_what_they_did), T(what_was_wanted_may_wait),
          T(coming_and_going_wants_no_more_than_it_takes), T(regret_lets_more_wait_and_fades),
          T(with_a_long_delay_nothing_goes_whatever_the_clock_says), T(a_leap_of_the_clock_purges_and_harms_nothing))
