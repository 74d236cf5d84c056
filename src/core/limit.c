/* SPDX-License-Identifier: MIT
 * See limit.h. */
#include "limit.h"

#include "dispatch.h"
#include "log.h"

static _Atomic(int64_t) held, peak;
static _Atomic(uint64_t) purges, purged_bytes, exceeded;

void hak_limit_take(size_t bytes)
{
    int64_t now = atomic_fetch_add_explicit(&held, (int64_t)bytes, memory_order_relaxed) + (int64_t)bytes;
    if (now > atomic_load_explicit(&peak, memory_order_relaxed)) /* two at once: the smaller may win */
        atomic_store_explicit(&peak, now, memory_order_relaxed);
}

void hak_limit_give(size_t bytes)
{
    atomic_fetch_sub_explicit(&held, (int64_t)bytes, memory_order_relaxed);
}

size_t hak_limit_held(void)
{
    int64_t n = atomic_load_explicit(&held, memory_order_relaxed);
    return n > 0 ? (size_t)n : 0;
}

static bool fits(size_t bytes)
{
    size_t limit = hak_dispatch.options.limit_mb * HAK_MIB;
    return !limit || (bytes <= limit && hak_limit_held() <= limit - bytes);
}

static void report(size_t bytes, size_t given)
{
    static _Atomic(bool) reported;
    const struct hak_options *o = &hak_dispatch.options;
    if ((o->ace_trace || o->verbose) && !atomic_exchange_explicit(&reported, true, memory_order_relaxed))
        hak_log("LIMIT: %zu bytes more would pass HAKMEM_LIMIT_MB=%u; %zu bytes given back, %zu held (reported once)",
                bytes, o->limit_mb, given, hak_limit_held());
}

void hak_limit_make_room(size_t bytes)
{
    if (HAK_LIKELY(fits(bytes)))
        return;
    hak_thread_ask_drain();
    size_t given = hak_give_back(0);
    atomic_fetch_add_explicit(&purges, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&purged_bytes, given, memory_order_relaxed);
    if (!fits(bytes))
        atomic_fetch_add_explicit(&exceeded, 1, memory_order_relaxed);
    report(bytes, given);
}

void hak_limit_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "limit");
    hak_stats_number(w, "limit_bytes", hak_dispatch.options.limit_mb * HAK_MIB);
    hak_stats_number(w, "held_bytes", hak_limit_held());
    hak_stats_number(w, "peak_bytes", (uint64_t)atomic_load_explicit(&peak, memory_order_relaxed));
    hak_stats_number(w, "purges", atomic_load_explicit(&purges, memory_order_relaxed));
    hak_stats_number(w, "purged_bytes", atomic_load_explicit(&purged_bytes, memory_order_relaxed));
    hak_stats_number(w, "exceeded", atomic_load_explicit(&exceeded, memory_order_relaxed));
    hak_stats_end(w);
}
