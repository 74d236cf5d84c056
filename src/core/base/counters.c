/* SPDX-License-Identifier: MIT
 * See counters.h. */
#include "counters.h"

#include "layout.h"

HAK_THREAD_LOCAL struct hak_counters *hak_counters_own;
HAK_SELDOM struct hak_counters hak_counters_nobodys;

const char hak_counter_names[HAK_NCOUNTERS][20] = {
#define X(name, meaning) #name,
    HAK_COUNTERS(X)
#undef X
};

_Atomic(uint64_t) hak_allocated;

void hak_publish_allocated(struct hak_counters *c)
{
    uint64_t own = HAK_LOAD_RELAXED(&c->allocated);
    HAK_STORE_RELAXED(&c->allocated, 0);
    HAK_ADD_RELAXED(&hak_allocated, own);
}

void hak_count_allocated(uint64_t bytes)
{
    struct hak_counters *own = hak_counters_own;
    if (!own) {
        HAK_ADD_RELAXED(&hak_allocated, bytes);
        return;
    }
    hak_count(&own->allocated, bytes);
    if (HAK_UNLIKELY(HAK_LOAD_RELAXED(&own->allocated) + HAK_ALLOCATED_OWN > 2 * HAK_ALLOCATED_OWN))
        hak_publish_allocated(own);
}

void hak_count_transition(unsigned from, unsigned to)
{
    HAK_COUNT_HERE(transitions[from][to]);
}

void hak_count_stage(unsigned stage)
{
    HAK_COUNT_HERE(stages[stage]);
}

void hak_counters_add(struct hak_counters *sum, const struct hak_counters *c)
{
    HAK_SHOW_VARIABLE(hak_counters_nobodys);
    _Atomic(uint64_t) *to = (_Atomic(uint64_t) *)sum;
    const _Atomic(uint64_t) *from = (const _Atomic(uint64_t) *)c;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        HAK_STORE_RELAXED(&to[i], HAK_LOAD_RELAXED(&to[i]) + HAK_LOAD_RELAXED(&from[i]));
}
