/* SPDX-License-Identifier: MIT
 * See dirty.h. */
#include "dirty.h"

#include "budget.h"
#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/base/work.h"
#include "core/os/limit.h"

#define PER_MISS 4u /* bytes that may stay dirty for each missed byte */
#define DECAY 16u   /* delays until the demand is forgotten */

struct hak_dirty_queue hak_dirty_queue;
_Atomic(bool) hak_dirty_is_busy;
static struct hak_dirty_queue *const queue = &hak_dirty_queue;

uint64_t hak_purge_delay_ms(void)
{
    return queue->at_once ? 0 : hak_options.purge_delay_ms;
}

/* In most cases the pages are adjacent. */
static size_t bytes_of(uint64_t pages)
{
    if (!pages)
        return 0;
    unsigned first = (unsigned)__builtin_ctzll(pages), behind = 64 - (unsigned)__builtin_clzll(pages);
    bool in_row = pages == hak_page_bits(first, behind - first);
    return HAK_PAGE * (in_row ? behind - first : (size_t)__builtin_popcountll(pages));
}

/* --- the queue --------------------------------------------------------------------------------------- */

static struct hak_dirty_list *list_of(const struct hak_dirty *d)
{
    return d->old ? &queue->lists[d->old == d->refused ? HAK_DIRTY_REFUSED : HAK_DIRTY_WAITING] : NULL;
}

/* Called after pages of the superslab became dirty, or ceased to be; `from`: the list that it was on. */
static void requeue(struct hak_dirty *d, struct hak_dirty_list *from, uint64_t now_ms)
{
    struct hak_dirty_list *to = list_of(d);
    if (HAK_LIKELY(to == from))
        return;
    if (from) {
        HAK_QUEUE_REMOVE(&from->first, &from->last, d);
        HAK_SUB_RELAXED(&from->length, 1);
    }
    if (to) {
        HAK_QUEUE_ADD(&to->first, &to->last, d);
        HAK_ADD_RELAXED(&to->length, 1);
        d->checked_ms = now_ms;
    }
}

/* --- demand ------------------------------------------------------------------------------------------ */

static void draw_down(size_t dirty, size_t missed)
{
    queue->drawdown += dirty + missed;
    queue->demand = hak_max(queue->demand + PER_MISS * missed, queue->drawdown);
}

size_t hak_dirty_most(void)
{
    size_t most = hak_options.batch_max_mb * HAK_MIB;
    bool many = HAK_LOAD_RELAXED(&queue->lists[HAK_DIRTY_WAITING].length) > hak_options.batch_max_ranges;
    return many ? hak_min(most, queue->waiting - 1) : most;
}

/* What remains of an estimate after so many delays. */
static size_t decayed(size_t bytes, uint64_t delays)
{
    return delays < DECAY ? bytes - bytes / DECAY * delays : 0;
}

/* Called at least once in each delay while pages come and go. */
static void decay(uint64_t now_ms)
{
    uint64_t age = hak_clock_age(queue->decayed_ms, now_ms), delay_ms = hak_purge_delay_ms();
    if (age <= delay_ms)
        return;
    uint64_t delays = delay_ms ? age / delay_ms : DECAY;
    queue->calls = queue->taken && delays < HAK_DIRTY_GAP;
    queue->wanted = decayed(queue->wanted, delays) + queue->taken;
    queue->taken = 0;
    queue->put = 0;
    queue->drawdown = 0;
    queue->demand = decayed(queue->demand, delays);
    queue->decayed_ms = now_ms;
}

/* Whether requests take so many pages that they would soon take all those that wait. */
static bool is_busy(uint64_t now_ms)
{
    decay(now_ms);
    return (queue->calls || queue->taken) && queue->wanted + queue->taken >= queue->waiting;
}

size_t hak_dirty_allowance(uint64_t now_ms)
{
    bool busy = is_busy(now_ms);
    size_t spare = busy ? queue->live : 0;
    HAK_STORE_RELAXED(&hak_dirty_is_busy, busy);
    return hak_purge_delay_ms() * HAK_DIRTY_UNWANTED_PER_MS + spare + queue->demand;
}

bool hak_dirty_is_idle_since(uint64_t then_ms, uint64_t now_ms)
{
    uint64_t delay_ms = hak_purge_delay_ms(), age = hak_clock_age(then_ms, now_ms);
    if (then_ms <= HAK_LOAD_RELAXED(&hak_slept_ms))
        return true;
    return age >= delay_ms && (age >= DECAY * delay_ms || !is_busy(now_ms));
}

bool hak_dirty_is_due(uint64_t now_ms)
{
    const struct hak_dirty *oldest = queue->lists[HAK_DIRTY_WAITING].first;
    if (!oldest)
        return false;
    return queue->waiting > hak_dirty_allowance(now_ms) || hak_dirty_is_idle_since(oldest->checked_ms, now_ms);
}

/* --- dirty pages ------------------------------------------------------------------------------------- */

static void add_dirty(struct hak_dirty *d, uint64_t pages, bool refused, uint64_t now_ms)
{
    struct hak_dirty_list *from = list_of(d);
    HAK_CHECK(!(d->old & pages));
    d->old |= pages;
    d->refused |= refused ? pages : 0;
    *(refused ? &queue->refused : &queue->waiting) += bytes_of(pages);
    requeue(d, from, now_ms);
}

/* Returns how many bytes were dirty. */
static size_t remove_dirty(struct hak_dirty *d, uint64_t pages)
{
    struct hak_dirty_list *from = list_of(d);
    size_t bytes = bytes_of(pages), refused = bytes_of(pages & d->refused);
    queue->waiting -= bytes - refused;
    queue->refused -= refused;
    d->old &= ~pages;
    d->idle &= ~pages;
    d->refused &= ~pages;
    requeue(d, from, d->checked_ms);
    return bytes;
}

/* Purged pages are taken. Returns how many bytes of them should have stayed dirty. */
static size_t return_purged(struct hak_dirty *d, uint64_t pages)
{
    size_t bytes = bytes_of(pages), missed = bytes_of(pages & ~d->idle);
    uint64_t age = hak_clock_age(d->purged_ms, hak_clock_ms());
    queue->purged -= bytes;
    d->purged &= ~pages;
    d->idle &= ~pages;
    if (age < HAK_REGRET_MS)
        hak_os_regret(d->purged_for, bytes);
    return age < 2 * hak_purge_delay_ms() ? missed : 0;
}

/* --- pages come and go ------------------------------------------------------------------------------- */

void hak_dirty_forget_torn(struct hak_dirty *d)
{
    HAK_AND_RELAXED(&d->torn, ~0u << HAK_DIRTY_COUNTED);
}

void hak_dirty_close(struct hak_dirty *d)
{
    queue->purged -= bytes_of(d->purged);
    hak_limit_split(-2 * __builtin_popcount(HAK_EXCHANGE_RELAXED(&d->torn, 0) >> HAK_DIRTY_COUNTED));
}

bool hak_dirty_take(struct hak_dirty *d, uint64_t pages)
{
    bool zero = !(hak_dirty_old(d) & pages);
    uint64_t clean = pages & ~d->old, purged = pages & d->purged;
    draw_down(clean != pages ? remove_dirty(d, pages & d->old) : 0, purged ? return_purged(d, purged) : 0);
    queue->live += bytes_of(pages);
    queue->taken += bytes_of(pages);
    hak_budget_take(bytes_of(clean));
    d->used |= pages;
    return zero;
}

void hak_dirty_put(struct hak_dirty *d, uint64_t pages, uint64_t now_ms)
{
    size_t bytes = bytes_of(pages);
    decay(now_ms);
    queue->put += bytes;
    queue->live -= bytes;
    queue->drawdown -= hak_min(queue->drawdown, bytes);
    d->put_ms = now_ms;
    add_dirty(d, pages, false, now_ms);
}

HAK_COLD uint64_t hak_dirty_soil(struct hak_dirty *d, uint64_t pages)
{
    pages &= ~d->used;
    if (!pages || !d->used)
        return 0;
    d->used |= pages;
    queue->purged -= bytes_of(pages & d->purged);
    d->purged &= ~pages;
    add_dirty(d, pages, false, hak_clock_ms());
    hak_budget_take(bytes_of(pages));
    return pages;
}

/* Pages that were purged lazily may still hold their old content. */
uint64_t hak_dirty_old(const struct hak_dirty *d)
{
    return hak_pages_go_lazily() ? d->used : d->old;
}

/* --- for a purge ------------------------------------------------------------------------------------- */

HAK_COLD void hak_dirty_checked(struct hak_dirty *d, uint64_t now_ms)
{
    struct hak_dirty_list *list = list_of(d);
    d->idle |= d->old;
    if (!list)
        return;
    HAK_QUEUE_REMOVE(&list->first, &list->last, d);
    HAK_QUEUE_ADD(&list->first, &list->last, d);
    d->checked_ms = now_ms;
}

HAK_COLD void hak_dirty_claim(struct hak_dirty *d, uint64_t pages)
{
    uint64_t now = hak_clock_ms(), idle = pages & (hak_dirty_is_idle_since(d->put_ms, now) ? d->old : d->idle);
    HAK_CHECK(!(pages & ~d->old));
    if (hak_clock_age(d->purged_ms, now) >= 2 * hak_purge_delay_ms())
        idle |= d->purged;
    remove_dirty(d, pages);
    d->idle |= idle;
}

HAK_COLD void hak_dirty_settle(struct hak_dirty *d, uint64_t pages, bool gone, enum hak_cause cause)
{
    uint64_t now = hak_clock_ms();
    if (gone) {
        d->purged |= pages;
        queue->purged += bytes_of(pages);
        d->purged_ms = now;
        d->purged_for = cause;
        hak_budget_give(bytes_of(pages));
        if (!(d->used & ~pages) && !hak_pages_go_lazily())
            d->used = 0;
        return;
    }
    add_dirty(d, pages, true, now);
    queue->refused_ms = now;
}
