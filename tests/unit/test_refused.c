/* SPDX-License-Identifier: MIT
 * A kernel that purges only a part: one of the free system pages is still locked, a vector is done in part, one call of
 * many fails, answers come late. Each call of the library must still return; all free memory is purged except for what
 * lies around the locked page, and once the fault is over, that too. Each kind of memory and each backend is tested. */
#include <stdio.h>

#include "core/heap/decay.h"
#include "core/pages/budget.h"
#include "core/plugin.h"
#include "touched.h"

#define AROUND_A_PAGE (HAK_SUPERSLAB + HAK_MIB) /* may stay with it */
#define OWN_SLABS (2 * HAK_MIB)                 /* what the thread's bins keep */
#define AN_HOUR "HAKMEM_PURGE_DELAY_MS=3600000"

/* Small and pool blocks, spans, and long ones. */
static const size_t sizes[] = {4000, 20000, 300000, 12 * HAK_MIB};

static size_t amount = 24 * HAK_MIB;

static struct touched take(size_t size)
{
    return touch(size, amount);
}

static void give(const struct touched *s)
{
    for (size_t i = 0; i < s->n; i++)
        hak_free(s->block[i]);
    hak_bins_flush(unit_thread());
}

/* Without huge pages: the kernel would make one again of the page that stays and what is around it. */
static void start(const char *settings)
{
    unit_needs_mincore();
    static char all[200];
    snprintf(all, sizeof all, "HAKMEM_THP=never %s", settings ? settings : "");
    unit_init(all);
}

static char *page_in(const struct touched *s, unsigned of_3)
{
    return s->block[of_3 * (s->n - 1) / 2] + s->size / 2;
}

static void wait_idle(void)
{
    for (unsigned i = 0; i < 20; i++) {
        fake_os_pass(hak_options.purge_delay_ms / 4 + 20);
        hak_purge_tick();
    }
}

/* --- one page is locked ------------------------------------------------------------------------------- */

/* By a trim, at once, or with time (NULL). */
static const char *const ways[] = {AN_HOUR, "HAKMEM_RELEASE=direct", NULL};

static void go_back(const char *way)
{
    uint64_t calls = fake_os_total();
    if (!way) {
        wait_idle();
        return;
    }
    hak_trim(0);
    assert_true(fake_os_total() - calls < amount / HAK_PAGE);
}

TEST_EACH(all_but_a_locked_page_goes_back, ways)
{
    start(*row);
    for (unsigned i = 0; i < 3 * COUNT(sizes); i++) {
        struct touched s = take(sizes[i / 3]);
        fake_os_lock_page(page_in(&s, i % 3));
        give(&s);
        go_back(*row);
        assert_resident(&s, AROUND_A_PAGE, "around a locked page");
        go_back(*row); /* refused again */
        fake_os_unlock_pages();
        go_back(*row);
        assert_resident(&s, OWN_SLABS, "with no page locked");
        unit_census();
    }
}

/* Blocks that stay live split the free memory into many ranges, and the kernel purges some of them: neither all nor
 * none. */
#define STAYS 128 /* one of so many */
#define AROUND_WHAT_STAYS(s) ((s)->n / STAYS * HAK_PAGE)

/* Frees those that stay, or all others. */
static void give_some(const struct touched *s, bool stay)
{
    for (size_t i = 0; i < s->n; i++)
        if ((i % STAYS == 0) == stay)
            hak_free(s->block[i]);
    hak_bins_flush(unit_thread());
}

TEST(a_trim_goes_around_a_locked_page_among_others)
{
    start(AN_HOUR);
    for (unsigned place = 0; place < 3; place++) {
        struct touched s = take(sizes[0]);
        fake_os_lock_page(page_in(&s, place));
        give_some(&s, false);
        hak_trim(0);
        assert_resident(&s, AROUND_A_PAGE + AROUND_WHAT_STAYS(&s), "after a trim around a locked page");
        fake_os_unlock_pages();
        give_some(&s, true);
        hak_trim(0);
        assert_resident(&s, OWN_SLABS, "after a trim with no page locked");
        unit_census();
    }
}

/* The request for a long block is the one that must make room. */
TEST(the_limit_is_kept_around_a_locked_page)
{
    start("HAKMEM_LIMIT_MB=64 " AN_HOUR);
    for (unsigned place = 0; place < 3; place++) {
        struct touched s = take(sizes[0]);
        fake_os_lock_page(page_in(&s, place));
        give_some(&s, false);
        struct touched other = take(sizes[3]);
        assert_true(hak_budget_held() <= 64 * HAK_MIB);
        give(&other);
        fake_os_unlock_pages();
        give_some(&s, true);
    }
}

/* A page that is used again is written to again: a refused page does not count as purged. */
TEST(what_was_refused_is_not_taken_for_zero)
{
    start(AN_HOUR);
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        struct touched s = take(sizes[i]);
        for (unsigned place = 0; place < 3; place++)
            fake_os_lock_page(page_in(&s, place));
        give(&s);
        hak_trim(0);
        for (size_t k = 0; k < s.n; k++) {
            s.block[k] = hak_alloc_zeroed(s.size);
            assert_true(s.block[k][0] == 0 && memcmp(s.block[k], s.block[k] + 1, s.size - 1) == 0);
        }
        give(&s);
        fake_os_unlock_pages();
    }
}

/* --- calls that fail, are done in part, or come late --------------------------------------------------- */

static void every_nth_fails(enum hak_os_call call, int error, bool onwards)
{
    for (unsigned i = 0; i < COUNT(sizes); i++)
        for (unsigned nth = 1, made = 8; nth <= 8 && nth <= made + 1; nth++) {
            struct touched s = take(sizes[i]);
            give(&s);
            uint64_t before = fake_os_count(call);
            fake_os_refuse(call, nth, error, onwards);
            hak_trim(0);
            made = (unsigned)(fake_os_count(call) - before);
            fake_os_allow();
            hak_trim(0);
            assert_resident(&s, OWN_SLABS, "after a trim that followed a refused one");
            munmap(s.block, s.n * sizeof *s.block);
        }
    unit_census();
}

TEST(whichever_call_fails_the_next_trim_makes_up_for_it)
{
    static const int errors[] = {ENOMEM, EAGAIN, EINTR, EINVAL, EPERM};
    start(AN_HOUR);
    amount = 5 * HAK_MIB;
    for (unsigned i = 0; i < COUNT(errors); i++) {
        every_nth_fails(HAK_OS_madvise, errors[i], false);
        every_nth_fails(HAK_OS_process_madvise, errors[i], false);
    }
    every_nth_fails(HAK_OS_madvise, ENOMEM, true);
}

TEST(a_vector_done_in_part_is_finished)
{
    start(AN_HOUR);
    for (unsigned most = 0; most < 4; most++)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            struct touched s = take(sizes[i]);
            give(&s);
            fake_os_vector(0, most);
            hak_trim(0);
            assert_resident(&s, OWN_SLABS, "after vectors done in part");
        }
    unit_census();
}

TEST(late_answers_delay_nothing_else)
{
    start(NULL);
    fake_os_late(HAK_OS_madvise, 50);
    fake_os_late(HAK_OS_process_madvise, 1000);
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        struct touched s = take(sizes[i]);
        give(&s);
        wait_idle();
        assert_resident(&s, OWN_SLABS, "after the purge delay with late answers");
    }
    unit_census();
}
