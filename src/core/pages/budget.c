/* SPDX-License-Identifier: MIT
 * See budget.h. */
#include "budget.h"

#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/os/cgroup.h"

static _Atomic(int64_t) held, peak;
static _Atomic(size_t) untouched; /* at most so many of the held bytes are untouched */
_Atomic(uint64_t) hak_budget_followed;
static _Atomic(uint64_t) of_container;
static _Atomic(size_t) hard;
static _Atomic(uint64_t) purges, purged_bytes, exceeded;

void hak_budget_take(size_t bytes)
{
    int64_t now = HAK_ADD_RELAXED(&held, (int64_t)bytes) + (int64_t)bytes;
    if (now > HAK_LOAD_RELAXED(&peak)) /* of two simultaneous stores the smaller may win */
        HAK_STORE_RELAXED(&peak, now);
}

/* What is given back may be what was not touched. */
void hak_budget_give(size_t bytes)
{
    size_t n = HAK_LOAD_RELAXED(&untouched);
    HAK_SUB_RELAXED(&held, (int64_t)bytes);
    if (HAK_UNLIKELY(n))
        HAK_STORE_RELAXED(&untouched, n - hak_min(n, bytes));
}

size_t hak_budget_held(void)
{
    int64_t n = HAK_LOAD_RELAXED(&held);
    return n > 0 ? (size_t)n : 0;
}

size_t hak_budget_peak(void)
{
    return (size_t)HAK_LOAD_RELAXED(&peak);
}

/* The lesser of two limits, of which 0 is none. */
static size_t lesser(size_t a, size_t b)
{
    return a && b ? hak_min(a, b) : a + b;
}

static void follow_lesser(void)
{
    size_t limit = HAK_LOAD_RELAXED(&of_container);
    HAK_STORE_RELAXED(&hak_budget_followed, lesser(limit, HAK_LOAD_RELAXED(&hard)));
}

void hak_budget_follow(uint64_t bytes)
{
    HAK_STORE_RELAXED(&of_container, bytes == UINT64_MAX ? 0 : bytes);
    follow_lesser();
}

void hak_budget_set_hard(size_t bytes)
{
    HAK_STORE_RELAXED(&hard, bytes);
    follow_lesser();
}

static bool is_within(size_t budget, size_t bytes)
{
    size_t used = hak_budget_held();
    used -= hak_min(used, HAK_LOAD_RELAXED(&untouched));
    return bytes <= budget && used <= budget - bytes;
}

bool hak_budget_allows_some(size_t bytes)
{
    return is_within(lesser(hak_budget_bytes(), HAK_LOAD_RELAXED(&hard)), bytes);
}

bool hak_budget_is_possible(size_t bytes)
{
    size_t limit = HAK_LOAD_RELAXED(&hard);
    return !limit || is_within(limit, bytes);
}

void hak_budget_look(bool if_untouched)
{
    if (if_untouched && !HAK_LOAD_RELAXED(&untouched))
        return;
    size_t n = hak_budget_held();
    HAK_STORE_RELAXED(&untouched, n - hak_min(n, hak_resident_bytes()));
}

static void report(size_t wanted, size_t purged)
{
    static _Atomic(bool) reported;
    const struct hak_option_values *o = &hak_options;
    const char *whose = o->limit_mb ? "HAKMEM_LIMIT_MB" : "the container's MiB";
    if ((o->ace_trace || o->verbose) && !HAK_EXCHANGE_RELAXED(&reported, true))
        hak_log("LIMIT: %zu bytes more would pass %s=%zu; %zu bytes given back, %zu held (reported once)", wanted,
                whose, hak_budget_bytes() / HAK_MIB, purged, hak_budget_held());
}

void hak_budget_note_purge(size_t wanted, size_t purged)
{
    HAK_ADD_RELAXED(&purges, 1);
    HAK_ADD_RELAXED(&purged_bytes, purged);
    if (!hak_budget_allows(wanted))
        HAK_ADD_RELAXED(&exceeded, 1);
    report(wanted, purged);
}

void hak_budget_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "budget");
    hak_stats_number(w, "budget_bytes", hak_budget_bytes());
    hak_stats_number(w, "held_bytes", hak_budget_held());
    hak_stats_number(w, "peak_bytes", (uint64_t)HAK_LOAD_RELAXED(&peak));
    hak_stats_number(w, "purges", HAK_LOAD_RELAXED(&purges));
    hak_stats_number(w, "purged_bytes", HAK_LOAD_RELAXED(&purged_bytes));
    hak_stats_number(w, "exceeded", HAK_LOAD_RELAXED(&exceeded));
    hak_stats_end(w);
}
