/* SPDX-License-Identifier: MIT
 * See container.h. */
#include "container.h"

#include "core/base/clock.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "core/os/cgroup.h"
#include "core/pages/budget.h"

#define FROM (32 * HAK_MIB) /* a smaller heap does not matter to its container */
#define INTERVAL_MS 1000u
#define STALL_US 10000u /* time that the group's processes waited for memory in an interval: memory is tight */

static uint64_t read_ms, stalled_us;
static _Atomic(uint64_t) limit, current, tight_times;

static bool is_tight(const struct hak_cgroup *c)
{
    bool stalled = c->stalled_us > stalled_us + STALL_US && read_ms;
    stalled_us = c->stalled_us;
    return stalled || c->near;
}

bool hak_container_is_tight(uint64_t now_ms)
{
    struct hak_cgroup c;
    hak_budget_look(true);
    if (hak_budget_held() < FROM || (read_ms && hak_clock_age(read_ms, now_ms) < INTERVAL_MS))
        return false;
    bool tight = hak_cgroup_read(&c) && is_tight(&c);
    read_ms = now_ms;
    HAK_STORE_RELAXED(&limit, c.limit);
    HAK_STORE_RELAXED(&current, c.current);
    HAK_ADD_RELAXED(&tight_times, tight);
    hak_budget_follow(c.limit);
    return tight;
}

void hak_container_look(void)
{
    struct hak_cgroup c;
    char *folder = hak_options.cgroup;
    if (!folder[0] || hak_text_is(folder, "off") || hak_options.sandbox || hak_cgroup_read(&c))
        return;
    hak_options_reject(&hak_options, "HAKMEM_CGROUP", folder, "no folder with memory.current");
    folder[0] = 0;
}

void hak_container_stats(struct hak_stats_writer *w)
{
    uint64_t n = HAK_LOAD_RELAXED(&limit);
    hak_stats_begin(w, "container");
    hak_stats_number(w, "limit_bytes", n == UINT64_MAX ? 0 : n);
    hak_stats_number(w, "current_bytes", HAK_LOAD_RELAXED(&current));
    hak_stats_number(w, "tight", HAK_LOAD_RELAXED(&tight_times));
    hak_stats_end(w);
}
