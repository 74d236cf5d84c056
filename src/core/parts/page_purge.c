/* SPDX-License-Identifier: MIT
 * See page_purge.h. */
#include "page_purge.h"

#include "core/base/clock.h"
#include "core/os/limit.h"
#include "core/pages/page_heap.h"
#include "parts.h"

static HAK_LOCK(purging, HAK_RANK_PURGE);

static bool claim(struct hak_dirty *d, unsigned first, unsigned pages)
{
    hak_pages_claim(d, first, pages);
    return true;
}

/* Under which idle pages go back. */
static enum hak_cause cause_of(const struct hak_dirty *d)
{
    switch (hak_pages_use(d)) {
    case HAK_PAGES_SLABS:
        return hak_options.ss_partial ? HAK_CAUSE_partial_release : HAK_PURGE_NOT_NOW;
    case HAK_PAGES_SPANS:
        return HAK_CAUSE_purge;
    default:
        return hak_parts.release->cause;
    }
}

struct hak_purger hak_pages_purger = {
    .queue = &hak_pages_dirty,
    .lock = &hak_pages_lock,
    .purging = &purging,
    .claim = claim,
    .settle = hak_pages_settle,
    .cause = cause_of,
};

/* --- the cache of superslabs ------------------------------------------------------------------------------ */

/* The next superslab beyond the limits: a clean one leaves the cache, a dirty one is the caller's to purge for
 * *cause. */
static struct hak_dirty *evict_clean(size_t keep, bool *clean, enum hak_cause *cause)
{
    hak_lock_acquire(&hak_pages_lock);
    struct hak_dirty *d = hak_pages_unwanted(keep);
    *clean = d && !d->dirty;
    *cause = d && hak_pages_use(d) == HAK_PAGES_LEAVING ? hak_parts.release->cause : HAK_CAUSE_lru_evict;
    if (*clean)
        hak_pages_evict(d);
    hak_lock_release(&hak_pages_lock);
    return d;
}

/* True: there are more, and the time is over. */
static bool evict(size_t keep, bool trim, uint64_t end_ns)
{
    struct hak_dirty *d;
    enum hak_cause cause;
    bool clean, over = false;
    if (!hak_purge_enter(&hak_pages_purger, trim))
        return false;
    while (!over && (d = evict_clean(keep, &clean, &cause))) {
        if (!clean)
            hak_purge_region(&hak_pages_purger, d, trim ? HAK_CAUSE_trim : cause);
        over = hak_os->clock_ns() >= end_ns;
    }
    hak_purge_leave(&hak_pages_purger);
    return over;
}

/* --- who asks for it -------------------------------------------------------------------------------------- */

/* Bytes that may wait: HAKMEM_BATCH_MAX_*. */
static size_t most_waiting(void)
{
    const struct hak_option_values *o = &hak_options;
    const struct hak_dirty_queue *q = &hak_pages_dirty;
    size_t most = o->batch_max_mb * HAK_MIB;
    return q->regions > o->batch_max_ranges && q->waiting ? hak_min(most, q->waiting - 1) : most;
}

void hak_pages_bound(void)
{
    hak_lock_acquire(&hak_pages_lock);
    size_t most = most_waiting();
    bool exceeds = hak_pages_dirty.waiting > most, look = hak_pages_check() || hak_parts.release->at_once;
    bool due = exceeds || (look && (hak_purge_is_due(&hak_pages_purger) || hak_pages_unwanted(SIZE_MAX)));
    hak_lock_release(&hak_pages_lock);
    if (!due)
        return;
    hak_purge_due(&hak_pages_purger, most);
    evict(SIZE_MAX, false, UINT64_MAX);
}

bool hak_pages_tick(uint64_t now_ms)
{
    hak_lock_acquire(&hak_pages_lock);
    bool evicts = hak_pages_unwanted(SIZE_MAX);
    hak_lock_release(&hak_pages_lock);
    if (evicts && evict(SIZE_MAX, false, hak_os->clock_ns() + HAK_PURGE_TICK_NS))
        return true;
    return hak_purge_tick_of(&hak_pages_purger, now_ms);
}

size_t hak_pages_trim(size_t keep)
{
    size_t bytes = hak_purge_trim(&hak_pages_purger, keep);
    evict(keep, true, UINT64_MAX);
    if (!keep && hak_limit() != SIZE_MAX)
        hak_pages_close();
    return bytes;
}
