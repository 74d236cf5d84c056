/* SPDX-License-Identifier: MIT
 * The tracker of dirty pages against a naive one, its charges and its queue. */
#include "core/pages/dirty.h"

#include <string.h>

#include "core/pages/budget.h"
#include "unit.h"

#define PAGES 64u

static struct hak_dirty a;
static const struct hak_dirty_queue *const queue = &hak_dirty_queue;

static bool take(unsigned first, unsigned n)
{
    return hak_dirty_take(&a, hak_page_bits(first, n));
}

static void put(unsigned first, unsigned n)
{
    hak_dirty_put(&a, hak_page_bits(first, n), hak_clock_ms());
}

static void purge(unsigned first, unsigned n)
{
    hak_dirty_claim(&a, hak_page_bits(first, n));
    hak_dirty_settle(&a, hak_page_bits(first, n), true, HAK_CAUSE_trim);
}

TEST(a_random_life_as_a_naive_account_says)
{
    static bool taken[PAGES], old[PAGES];
    uint64_t random = 5;
    unit_init(NULL);
    size_t held = hak_budget_held();
    for (unsigned round = 0; round < 20000; round++) {
        unsigned first = (unsigned)(unit_random(&random) % PAGES), n = 1, charged = 0, waiting = 0;
        unsigned most = 1 + (unsigned)(unit_random(&random) % (PAGES - first));
        bool was_taken = taken[first], was_old = old[first];
        while (n < most && taken[first + n] == was_taken && old[first + n] == was_old)
            n++;
        if (was_taken)
            put(first, n);
        else if (was_old && round % 3 == 0)
            purge(first, n);
        else
            assert_int_equal(take(first, n), !was_old);
        bool purged = was_old && round % 3 == 0;
        memset(taken + first, !was_taken && !purged, n);
        memset(old + first, was_taken, n);
        uint64_t bits = 0;
        for (unsigned i = 0; i < PAGES; i++) {
            waiting += old[i];
            charged += old[i] || taken[i];
            bits |= (uint64_t)old[i] << i;
        }
        assert_int_equal(queue->waiting, waiting * HAK_PAGE);
        assert_int_equal(hak_budget_held() - held, charged * HAK_PAGE);
        assert_int_equal(a.old, bits);
        assert_ptr_equal(queue->lists[HAK_DIRTY_WAITING].first, waiting ? &a : NULL);
        assert_int_equal(queue->lists[HAK_DIRTY_WAITING].length, waiting != 0);
    }
}

TEST(pages_that_were_never_taken_can_become_dirty)
{
    const uint64_t all = hak_page_bits(0, PAGES);
    unit_init(NULL);
    size_t held = hak_budget_held();
    take(3, 2);
    put(3, 2);
    hak_dirty_soil(&a, all);
    assert_int_equal(queue->waiting, PAGES * HAK_PAGE);
    assert_int_equal(hak_budget_held() - held, PAGES * HAK_PAGE);
    purge(0, PAGES);
    hak_dirty_soil(&a, all); /* purged pages are not resident */
    assert_int_equal(queue->waiting, 0);
    assert_int_equal(hak_budget_held(), held);
    take(7, 1); /* its first use brings the huge page back */
    put(7, 1);
    hak_dirty_soil(&a, all);
    assert_int_equal(queue->waiting, PAGES * HAK_PAGE);
    assert_int_equal(queue->purged, 0);
    purge(0, PAGES);
    assert_int_equal(hak_budget_held(), held);
}
