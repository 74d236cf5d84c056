/* SPDX-License-Identifier: MIT
 * Purges of a few superslabs, all of whose pages are taken but those that a test puts: which pages are purged, which
 * are refused, and how many may wait. */
#include "core/parts/purge.h"

#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/pages/budget.h"
#include "core/process/control.h"
#include "unit.h"

#define PAGES (7 * HAK_SUPERSLAB_PAGES)
#define DELAY 100u

static const struct hak_dirty_queue *const queue = &hak_dirty_queue;
static char *base;

static void start(const char *settings)
{
    struct hak_page_request r = {.pages = PAGES, .align = HAK_HUGE_PAGE / HAK_PAGE, .slab = true};
    unit_init(settings);
    assert_true(hak_pages_take(&r, HAK_PAGES_MAPPED));
    base = r.base;
    for (unsigned i = 0; i < 2 && hak_purge_delay_ms(); i++) { /* that they were wanted is forgotten */
        fake_os_pass(17 * hak_purge_delay_ms());
        hak_dirty_allowance(hak_clock_ms());
    }
}

static void put(size_t first, size_t n)
{
    unit_put_pages(base + first * HAK_PAGE, n);
}

/* Takes the first pages of the shortest free run that is long enough, or those that were put last. True: they read as
 * zero. */
static bool take_any(size_t *first, size_t n)
{
    struct hak_page_request r = {.pages = n, .slab = true};
    assert_true(hak_pages_take(&r, HAK_PAGES_WHOLE));
    *first = (size_t)(r.base - base) / HAK_PAGE;
    return r.zero;
}

static bool take(size_t first, size_t n)
{
    size_t got;
    bool zero = take_any(&got, n);
    assert_int_equal(got, first);
    return zero;
}

static void tick(void)
{
    hak_pages_tick(hak_clock_ms());
}

/* --- what goes --------------------------------------------------------------------------------------- */

TEST(what_goes_too_soon_is_regretted_under_its_cause)
{
    start(NULL);
    put(0, 7);
    hak_pages_trim(0);
    const struct hak_ledger_entry *e = hak_ledger[HAK_CAUSE_trim];
    fake_os_pass(HAK_REGRET_MS - 1);
    assert_true(take(0, 4));
    assert_int_equal(e[HAK_OS_madvise].regret_bytes + e[HAK_OS_process_madvise].regret_bytes, 4 * HAK_PAGE);
    fake_os_pass(1);
    assert_true(take(4, 3));
    assert_int_equal(e[HAK_OS_madvise].regret_bytes + e[HAK_OS_process_madvise].regret_bytes, 4 * HAK_PAGE);
}

TEST(idle_is_what_was_dirty_at_the_last_check)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    tick();
    put(0, 20);
    for (unsigned i = 0; i < 2; i++) { /* checked once; the other run comes and goes */
        fake_os_pass(DELAY / 2);
        put(24, 3);
        tick();
        take(24, 3);
    }
    assert_int_equal(queue->waiting, 20 * HAK_PAGE);
    put(24, 3);
    for (unsigned i = 0; i < 2; i++) {
        fake_os_pass(DELAY / 2);
        take(24, 3);
        put(24, 3);
        tick();
    }
    assert_int_equal(queue->waiting, 3 * HAK_PAGE);
    assert_int_equal(queue->lists[HAK_DIRTY_WAITING].first->old, hak_page_bits(24, 3));
}

static void want(size_t pages)
{
    put(8, pages);
    fake_os_pass(DELAY - 1);
    take(8, pages);
    tick();
}

/* As many pages are wanted as wait, so idle ones stay, but not for ever, and not if nothing is wanted any more. */
TEST(while_pages_are_wanted_idle_ones_stay)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    for (unsigned n = 0; n < 2; n++) {
        put(0, 2);
        for (unsigned i = 0; i < 15; i++) {
            want(3);
            assert_int_equal(queue->waiting, 2 * HAK_PAGE);
        }
        for (unsigned i = 0; i < 20 && n; i++) /* two checks */
            want(3);
        fake_os_pass(n ? 0 : 4 * DELAY + 1);
        tick();
        assert_int_equal(queue->waiting, 0);
        take(0, 2);
    }
}

TEST(what_went_back_as_idle_is_not_claimed_again)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    put(0, 2);
    fake_os_pass(DELAY);
    tick();
    assert_int_equal(queue->waiting, 0);
    put(4, 3);
    for (unsigned i = 0; i < 4; i++) { /* the superslab is never idle as a whole */
        fake_os_pass(DELAY / 2);
        put(8, 1);
        tick();
        take(8, 1);
    }
    assert_int_equal(queue->waiting, 0);
}

TEST(much_goes_in_steps)
{
    start("HAKMEM_PURGE_DELAY_MS=100 HAKMEM_BATCH_MAX_MB=4096 HAKMEM_SUPERSLAB_MAX_MEMORY_MB=4096 "
          "HAKMEM_SUPERSLAB_TTL_SEC=3600");
    unit_needs_delay();
    put(0, PAGES);
    fake_os_pass(DELAY);
    fake_os_clock(60000); /* each read of the clock takes so long */
    unsigned steps = 0;
    for (size_t left = queue->waiting; left; left = queue->waiting, steps++) {
        tick();
        assert_in_range(left - queue->waiting, 1, 4 * HAK_MIB);
    }
    assert_true(steps >= PAGES * HAK_PAGE / (4 * HAK_MIB));
}

/* --- what is refused --------------------------------------------------------------------------------- */

TEST(one_locked_page_stays_and_those_around_it_go)
{
    size_t held = 5 * HAK_PAGE;
    start(NULL);
    put(5, 20);
    fake_os_lock_page(base + 11 * HAK_PAGE + 4096);
    assert_int_equal(hak_pages_trim(0), 19 * HAK_PAGE);
    assert_int_equal(queue->refused, HAK_PAGE);
    assert_int_equal(queue->waiting, 0);
    assert_int_equal(hak_budget_held(), PAGES * HAK_PAGE - 19 * HAK_PAGE);
    assert_int_equal(hak_pages_trim(0), 0); /* purged again, and refused again */
    fake_os_allow();
    assert_false(take(5, 20)); /* it has its old content */
    assert_int_equal(queue->refused, 0);
    put(5, 20);
    assert_int_equal(hak_pages_trim(held), 15 * HAK_PAGE);
}

TEST(where_all_is_refused_a_purge_ends_and_asks_again_later)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    put(0, PAGES);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    fake_os_refuse(HAK_OS_process_madvise, 1, EINVAL, true);
    assert_int_equal(hak_pages_trim(0), 0);
    assert_int_equal(queue->refused, PAGES * HAK_PAGE);
    uint64_t calls = fake_os_total();
    for (unsigned i = 0; i < 10; i++) { /* neither ticks nor frees spin on it */
        fake_os_pass(DELAY);
        tick();
        hak_pages_bound();
    }
    assert_int_equal(fake_os_total(), calls);
    fake_os_allow();
    fake_os_pass(10000);
    while (hak_pages_tick(hak_clock_ms()))
        ;
    assert_int_equal(queue->refused, 0);
    assert_int_equal(queue->waiting, 0);
}

/* However short the run is. */
TEST(beside_a_refused_page_its_neighbour_goes)
{
    start(NULL);
    for (size_t n = 2; n <= 5; n++)
        for (size_t locked = 0; locked < n; locked++) {
            put(10, n);
            fake_os_lock_page(base + (10 + locked) * HAK_PAGE);
            assert_int_equal(hak_pages_trim(0), (n - 1) * HAK_PAGE);
            assert_int_equal(queue->refused, HAK_PAGE);
            fake_os_unlock_pages();
            assert_int_equal(hak_pages_trim(0), HAK_PAGE);
            take(10, n);
        }
}

/* --- huge pages, of 32 pages each ---------------------------------------------------------------------- */

#define HUGE (HAK_HUGE_PAGE / HAK_PAGE)

static uint64_t kept_small(void)
{
    return unit_stat("huge_pages", "kept_small");
}

static void purge(size_t first, size_t n)
{
    put(first, n);
    hak_pages_trim(0);
    assert_int_equal(queue->waiting, 0);
    take(first, n);
}

static void start_with_huge_pages(const char *settings)
{
    if (HAK_SUPERSLAB < HAK_HUGE_PAGE)
        skip(); /* the ends of superslabs lie within one */
    start(settings);
}

TEST(the_rest_of_a_huge_page_is_to_stay_small)
{
    start_with_huge_pages("HAKMEM_THP=always");
    purge(0, 2 * HUGE); /* whole ones */
    assert_int_equal(kept_small(), 0);
    purge(3, 5);
    assert_int_equal(kept_small(), 1);
    assert_ptr_equal(fake_os_kept_small().iov_base, base);
    assert_int_equal(fake_os_kept_small().iov_len, HAK_HUGE_PAGE);
    purge(1, 2); /* of the same one */
    purge(0, HUGE);
    assert_int_equal(kept_small(), 1);
    purge(HUGE + 1, 2 * HUGE); /* its ends lie in two huge pages */
    assert_int_equal(kept_small(), 3);
    purge(HUGE - 1, 2); /* a long run lay in the first one meanwhile */
    assert_int_equal(kept_small(), 4);
}

/* If the superslab begins or ends within it, only the superslab's part. */
TEST(what_is_to_stay_small_is_the_superslabs)
{
    start("HAKMEM_THP=always");
    if (HAK_SUPERSLAB >= HAK_HUGE_PAGE)
        skip();
    purge(HAK_SUPERSLAB_PAGES + 1, 1);
    assert_int_equal(kept_small(), 1);
    assert_ptr_equal(fake_os_kept_small().iov_base, base + HAK_SUPERSLAB);
    assert_int_equal(fake_os_kept_small().iov_len, HAK_SUPERSLAB);
}

TEST(small_pages_do_not_split_too_many_mappings)
{
    start_with_huge_pages("HAKMEM_THP=always");
    hak_limit_allows(0);
    uint64_t most = hak_limit_mappings;
    HAK_STORE_RELAXED(&hak_limit_mappings, 1);
    purge(3, 5);
    assert_int_equal(kept_small(), 0);
    HAK_STORE_RELAXED(&hak_limit_mappings, most);
    purge(3, 5);
    assert_int_equal(kept_small(), 1);
}

/* A long block may leave them as they are. */
TEST(each_of_these_mappings_is_counted_once)
{
    start_with_huge_pages("HAKMEM_THP=always");
    hak_limit_allows(0);
    for (HAK_STORE_RELAXED(&hak_limit_mappings, 1); !hak_limit_allows(2);)
        HAK_ADD_RELAXED(&hak_limit_mappings, 1);
    for (unsigned i = 1; i <= 3; i++) {
        purge(3, 5);
        purge(0, 2 * HUGE);
        purge(HUGE + 3, 5); /* one too many */
        assert_int_equal(kept_small(), i);
    }
}

static const struct {
    const char *settings;
    bool huge;
} wishes[] = {{"HAKMEM_PURGE_DELAY_MS=100 HAKMEM_THP=always", true},
              {"HAKMEM_PURGE_DELAY_MS=100 HAKMEM_THP=never", false}};

/* Takes three pages of a new superslab; returns the first. */
static char *take_new(void)
{
    struct hak_page_request r = {.pages = 3, .slab = true};
    assert_true(hak_pages_take(&r, HAK_PAGES_MAPPED));
    return r.base;
}

TEST_EACH(a_trim_takes_what_a_huge_page_made_resident_although_no_block_used_it, wishes)
{
    start(row->settings);
    take_new();
    size_t held = hak_budget_held(), most = row->huge ? (HAK_SUPERSLAB_PAGES - 3) * HAK_PAGE : 0;
    assert_int_equal(hak_pages_trim(0), most);
    assert_int_equal(hak_pages_trim(0), 0);
    assert_int_equal(hak_budget_held(), held);
    assert_int_equal(queue->demand, 0);
}

TEST_EACH(so_does_a_tick_that_purges_another_page_of_the_superslab, wishes)
{
    start(row->settings);
    unit_needs_delay();
    char *first = take_new();
    unit_put_pages(first + HAK_PAGE, 1);
    fake_os_pass(4 * DELAY + 1); /* nothing is wanted any more */
    size_t purged = queue->purged, pages = row->huge ? HAK_SUPERSLAB_PAGES - 2 : 1;
    tick();
    assert_int_equal(queue->waiting, 0);
    assert_int_equal(queue->purged - purged, pages * HAK_PAGE);
}

TEST(nothing_is_said_where_there_are_no_huge_pages)
{
    start("HAKMEM_THP=never");
    purge(3, 5);
    assert_int_equal(kept_small(), 0);
}

/* --- what may wait ----------------------------------------------------------------------------------- */

#define MANY 150u

TEST(a_free_purges_no_more_than_a_bound_when_the_limit_falls)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000");
    unit_needs_delay();
    struct hak_page_request r = {.pages = 512 * HAK_MIB / HAK_PAGE, .slab = true};
    assert_true(hak_pages_take(&r, HAK_PAGES_MAPPED));
    unit_put_pages(r.base, r.pages);
    assert_int_equal(hak_control_set("HAKMEM_BATCH_MAX_MB", "1"), 0);
    HAK_STORE_RELAXED(&hak_pages_due, true);
    for (size_t waiting = queue->waiting, now; waiting > HAK_MIB; waiting = now) {
        hak_pages_bound();
        now = queue->waiting;
        assert_in_range(waiting - now, 1, (4 + 64 * HAK_MIB / HAK_SUPERSLAB) * 2 * HAK_MIB);
    }
}

/* By what was wanted; the number of taken pages allows more. */
static size_t allowance(void)
{
    size_t all = hak_dirty_allowance(hak_clock_ms()), wanted = DELAY * HAK_DIRTY_UNWANTED_PER_MS + queue->demand;
    assert_in_range(all, wanted, wanted + queue->live);
    return wanted;
}

static size_t start_with_delay(void)
{
    start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    assert_int_equal(allowance(), DELAY * HAK_DIRTY_UNWANTED_PER_MS);
    return allowance();
}

/* A little more is purged, so that the next page does not need another purge. */
TEST(what_nobody_came_for_goes_beyond_the_allowance)
{
    size_t least = start_with_delay();
    if (PAGES < MANY)
        skip();
    put(0, MANY);
    assert_int_equal(allowance(), least);
    while (hak_pages_tick(hak_clock_ms()))
        ;
    least += queue->live / 4;
    assert_in_range(queue->waiting, least / 2, least / 4 * 3 + HAK_HUGE_PAGE);
}

TEST(what_was_wanted_may_wait)
{
    size_t least = start_with_delay();
    if (PAGES < MANY)
        skip();
    put(0, MANY);
    take(0, MANY);
    assert_int_equal(allowance(), least + MANY * HAK_PAGE);
    put(0, MANY);
    tick();
    assert_int_equal(queue->waiting, MANY * HAK_PAGE);
    fake_os_pass(16 * DELAY);
    assert_int_equal(allowance(), least);
}

TEST(coming_and_going_wants_no_more_than_it_takes)
{
    size_t least = start_with_delay();
    for (unsigned i = 0; i < 1000; i++) {
        put(0, 10);
        take(0, 10);
    }
    assert_int_equal(allowance(), least + 10 * HAK_PAGE);
}

TEST(misses_let_more_wait_and_are_forgotten)
{
    size_t least = start_with_delay(), n = PAGES / 2;
    put(0, n);
    hak_pages_trim(0);
    assert_int_equal(queue->waiting, 0);
    take(0, n);
    size_t more = allowance();
    assert_true(more >= least + n * HAK_PAGE);
    for (unsigned i = 0; i < 8; i++) {
        fake_os_pass(DELAY + 1);
        size_t now = allowance();
        assert_true(now < more);
        more = now;
    }
    fake_os_pass(100 * DELAY);
    assert_int_equal(allowance(), least);
}
