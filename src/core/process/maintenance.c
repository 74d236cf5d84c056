/* SPDX-License-Identifier: MIT
 * See maintenance.h. */
#include "maintenance.h"

#include <limits.h>

#include "background.h"
#include "container.h"
#include "core/base/clock.h"
#include "core/heap/cpu_heaps.h"
#include "core/heap/decay.h"
#include "core/heap/heaps.h"
#include "core/heap/thread.h"
#include "core/pages/budget.h"
#include "core/pages/run_cache.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/parts/purge.h"
#include "report.h"
#include "signal.h"
#include "start.h"

#define TICK_MS 10
#define ASK_MIN_MS (2 * TICK_MS) /* for sleeping programs; a running thread ticks more often, whatever the delay */
#define UNTAGGED_PAGES 4096u     /* per round: some 100 us */
/* without a rest: pages that the kernel keeps refusing must not keep the thread busy */
#define BACKGROUND_ROUNDS 1000
#define BACKGROUND_ASLEEP 4u           /* rounds of the background thread in a sleep, in which nothing may be left */
#define BACKGROUND_BYTES (4 * HAK_MIB) /* that the heap must hold before it starts */

static _Atomic(uint64_t) due_ms;
static _Atomic(bool) ticking; /* acquired and released by the thread that ticks */

/* Whether no slow path ran for the purge delay, or some of them: then all free memory is idle, and so is what ended
 * threads left. */
static bool has_slept(uint64_t awake, uint64_t now_ms)
{
    uint64_t delays = HAK_LOAD_RELAXED(&hak_dirty_is_busy) ? HAK_DIRTY_GAP : 1;
    return awake && hak_clock_age(awake, now_ms) >= delays * hak_purge_delay_ms();
}

/* Dissolves up to `most` heaps that a fork left at `since_ms` or before, and those of CPUs that have been idle since.
 * True: there may be more. */
static bool dissolve_idle(uint64_t since_ms, unsigned most)
{
    if (HAK_CPU_HEAPS)
        hak_cpu_heaps_dissolve(hak_min(since_ms, hak_clock_ms() - 1)); /* not one that was made just now */
    return hak_heaps_dissolve(since_ms, most);
}

static bool tick_parts(uint64_t now_ms)
{
    bool more = hak_parts.backend->purge_tick && hak_parts.backend->purge_tick(now_ms);
    hak_run_cache_tick(now_ms);
    return hak_pages_tick(now_ms) || more;
}

static void purge_idle(uint64_t now_ms, bool slept)
{
    uint64_t delay = hak_options.purge_delay_ms;
    bool more = dissolve_idle(slept ? UINT64_MAX : now_ms - hak_min(now_ms, delay), HAK_DISSOLVED_AT_ONCE);
    if (slept)
        HAK_STORE_RELAXED(&hak_slept_ms, now_ms = hak_clock_ms());
    more |= tick_parts(now_ms);
    HAK_STORE_RELAXED(&hak_purge_waits, more);
}

static bool is_due(uint64_t now_ms)
{
    return now_ms >= HAK_LOAD_RELAXED(&due_ms) || HAK_LOAD_RELAXED(&hak_purge_waits);
}

static unsigned share_of(uint64_t age_ms)
{
    return (unsigned)hak_min(HAK_TICK_MOST, hak_max(1, age_ms / TICK_MS));
}

/* One thread ticks; others that come at the same time return. */
static HAK_NOINLINE void tick(uint64_t now, uint64_t awake)
{
    if (!is_due(now) || HAK_EXCHANGE_ACQUIRE(&ticking, true))
        return;
    if (is_due(now)) {
        HAK_STORE_RELAXED(&due_ms, now + TICK_MS);
        HAK_STORE_RELAXED(&hak_tick_share, share_of(hak_clock_age(awake, now)));
        HAK_STORE_RELAXED(&hak_purge_waits, false); /* other threads need not tick meanwhile */
        purge_idle(now, has_slept(awake, now));
        if (HAK_UNLIKELY(hak_container_is_tight(now))) {
            hak_thread_request_flush();
            hak_purge_all(0);
        }
        if (HAK_UNLIKELY(hak_options.stats == HAK_STATS_PROMETHEUS))
            hak_stats_tick(now);
    }
    HAK_STORE_RELEASE(&ticking, false);
}

void hak_maintenance_fork_child(void)
{
    HAK_STORE_RELAXED(&ticking, false); /* the thread that ticked is not in the child */
}

static void tick_awake(uint64_t now_ms)
{
    tick(now_ms, HAK_EXCHANGE_RELAXED(&hak_awake_ms, now_ms));
}

void hak_purge_tick(void)
{
    tick_awake(hak_clock_ms());
}

/* Untags slabs so that threads flush their bins: once in each period in which all threads sleep, a part of the heap per
 * round. True: more is to be done. Called by the background thread. */
static bool ask_sleepers(uint64_t awake, uint64_t now_ms)
{
    static uint64_t asked_in;
    static size_t next;
    if (hak_clock_age(awake, now_ms) < ASK_MIN_MS || !has_slept(awake, now_ms) || (awake == asked_in && !next))
        return false;
    if (awake != asked_in)
        hak_thread_request_flush();
    next = hak_space_untag_open(awake == asked_in ? next : 0, UNTAGGED_PAGES);
    asked_in = awake;
    return next;
}

/* The background thread's ticks do not count as activity of the program. False: nothing is left to do in this sleep;
 * the first round of a sleep makes all idle, and what it releases may be purged in later ones. */
static bool purge_in_background(void)
{
    static unsigned asleep;
    unsigned rounds = 0;
    uint64_t awake = HAK_LOAD_RELAXED(&hak_awake_ms), now = hak_clock_ms();
    bool more = ask_sleepers(awake, now) || hak_options.stats == HAK_STATS_PROMETHEUS;
    do
        tick(hak_clock_ms(), HAK_LOAD_RELAXED(&hak_awake_ms));
    while (HAK_LOAD_RELAXED(&hak_purge_waits) && ++rounds < BACKGROUND_ROUNDS);
    asleep = has_slept(awake, now) && !more ? asleep + 1 : 0;
    return asleep < BACKGROUND_ASLEEP;
}

void hak_maintenance_background(void)
{
    if (hak_options.background)
        hak_background_start(purge_in_background);
}

void hak_maintain_now(void)
{
    uint64_t now = hak_clock_ms();
    hak_work = 0;
    if (hak_counters_own)
        hak_publish_allocated(hak_counters_own);
    if (HAK_CPU_HEAPS && !hak_self.heap)
        hak_cpu_heap_scan(now);
    else
        hak_bins_scan(now);
    if (HAK_CPU_HEAPS)
        hak_thread_step(now);
    tick_awake(now);
    if (HAK_UNLIKELY(HAK_LOAD_RELAXED(&hak_signal_waiting)))
        hak_signal_send_again();
    if (hak_budget_held() >= BACKGROUND_BYTES || hak_options.stats == HAK_STATS_PROMETHEUS)
        hak_maintenance_background();
}

/* The heaps of CPUs in use stay: their blocks would be taken again at once. */
size_t hak_purge_all(size_t keep)
{
    hak_heaps_dissolve(UINT64_MAX, UINT_MAX);
    if (hak_parts.backend->flush)
        hak_parts.backend->flush();
    hak_run_cache_flush();
    return hak_pages_trim(keep);
}

/* --- limits ------------------------------------------------------------------------------------------------ */

#define REACHED_MOST 16u /* a program may free in steps */

static HAK_LOCK(reached_lock, HAK_RANK_ARENAS);
static struct {
    hak_reached_function *call;
    void *context;
} limit_reached;                         /* under the lock, so a call gets its own context */
static HAK_THREAD_LOCAL bool in_reached; /* the function allocates itself */

void hak_limit_hard(size_t bytes, hak_reached_function *reached, void *context)
{
    hak_lock_acquire(&reached_lock);
    limit_reached.call = reached;
    limit_reached.context = context;
    hak_lock_release(&reached_lock);
    hak_budget_set_hard(bytes);
}

static bool purge_for(size_t bytes)
{
    hak_budget_look(false);
    if (hak_budget_allows(bytes))
        return true;
    hak_thread_request_flush();
    hak_thread_heap(); /* flushes this thread's bins at once */
    hak_budget_note_purge(bytes, hak_purge_all(0));
    return hak_budget_is_possible(bytes);
}

bool hak_make_room(size_t bytes)
{
    for (unsigned i = 0; !purge_for(bytes); i++) {
        hak_lock_acquire(&reached_lock);
        hak_reached_function *reached = limit_reached.call;
        void *context = limit_reached.context;
        hak_lock_release(&reached_lock);
        if (!reached || in_reached || i == REACHED_MOST)
            return false;
        in_reached = true;
        bool again = reached(bytes, context);
        in_reached = false;
        if (!again)
            return false;
    }
    return true;
}
