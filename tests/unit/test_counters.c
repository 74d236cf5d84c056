/* SPDX-License-Identifier: MIT */
#include "core/base/counters.h"

#include <string.h>

#include "unit.h"

/* The sum has each member at its own place. */
TEST(a_sum_has_every_member)
{
    static struct hak_counters one, sum;
    _Atomic(uint64_t) *members = (_Atomic(uint64_t) *)&one, *sums = (_Atomic(uint64_t) *)&sum;
    size_t n = sizeof one / sizeof *members;
    for (size_t i = 0; i < n; i++)
        members[i] = i + 1;
    hak_counters_add(&sum, &one);
    hak_counters_add(&sum, &one);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(sums[i], 2 * (i + 1));
}

TEST(a_thread_counts_in_its_own_and_else_in_those_of_nobody)
{
    static struct hak_counters own;
    unsigned last = HAK_COUNTED_STATES - 1;
    hak_count_transition(last, 0);
    hak_count_stage(HAK_STAGES - 1);
    assert_int_equal(hak_counters_nobodys.transitions[last][0], 1);
    assert_int_equal(hak_counters_nobodys.stages[HAK_STAGES - 1], 1);
    hak_counters_own = &own;
    hak_count_transition(last, 0);
    hak_count_transition(last, 0);
    hak_count_stage(0);
    hak_counters_own = NULL;
    assert_int_equal(own.transitions[last][0], 2);
    assert_int_equal(own.stages[0], 1);
    assert_int_equal(hak_counters_nobodys.transitions[last][0], 1);
    assert_int_equal(hak_counters_nobodys.stages[0], 0);
}
