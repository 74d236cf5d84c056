/* SPDX-License-Identifier: MIT
 * See counters.h. */
#include "counters.h"

HAK_THREAD_LOCAL struct hak_counters *hak_counters_own;
struct hak_counters hak_counters_nobodys;

void hak_count_transition(unsigned from, unsigned to)
{
    if (HAK_LIKELY(hak_counters_own))
        hak_count(&hak_counters_own->transitions[from][to], 1);
    else
        HAK_ADD_RELAXED(&hak_counters_nobodys.transitions[from][to], 1);
}

void hak_counters_add(struct hak_counters *sum, const struct hak_counters *c)
{
    _Atomic(uint64_t) *to = (_Atomic(uint64_t) *)sum;
    const _Atomic(uint64_t) *from = (const _Atomic(uint64_t) *)c;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        HAK_STORE_RELAXED(&to[i], HAK_LOAD_RELAXED(&to[i]) + HAK_LOAD_RELAXED(&from[i]));
}
