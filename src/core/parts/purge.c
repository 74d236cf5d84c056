/* SPDX-License-Identifier: MIT
 * See purge.h. */
#include "purge.h"

#include <limits.h>

#include "core/base/clock.h"
#include "core/base/work.h"
#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/pages/page_heap.h"
#include "core/pages/superslab.h"
#include "parts.h"

#define TICK_NS 200000u /* a tick takes so much of a thread that came for another reason */
#define PIECES 32u
#define EXTRA_BYTES (4 * HAK_MIB) /* a purge of what exceeds the allowance goes at most so far below it */
#define BATCH_BYTES (2 * HAK_MIB) /* it takes some 100 us */
/* A batch, and each range purged, may split so many refused ranges to find the pages that the kernel refuses. */
#define SPLITS 8u
#define REFUSAL_MS 10000u         /* so long after a refusal a tick tries refused pages again */
#define VISITS 64u                /* visits to superslabs while the page heap's lock is held */
#define MOST_BYTES (64 * HAK_MIB) /* a free purges at most so much beyond two batches, and evicts so much */
#define NOT_NOW HAK_NCAUSES

static HAK_LOCK(purging, HAK_RANK_PURGE); /* held from claim to settle */

/* The claimed pages, which one call purges. The thread that purges writes this, under the page heap's lock. */
static struct {
    enum hak_cause cause;
    unsigned n;
    size_t bytes;
    struct piece {
        struct hak_superslab *superslab;
        unsigned first, pages, settled; /* settled: so many pages from the first on */
    } pieces[PIECES];
} batch;

/* What a purge is to do. */
struct wish {
    uint64_t now_ms;
    /* idle pages; the oldest pages beyond the allowance; refused pages, until one is refused again; all */
    enum { IDLE, EXCESS, REFUSED, TRIM } of;
    size_t keep;                     /* bytes that may stay dirty */
    unsigned left;                   /* superslabs still to visit */
    unsigned batches;                /* batches after which to stop; 0: no limit */
    uint64_t end_ns;                 /* when to stop; 0: no limit */
    struct hak_superslab *superslab; /* the superslab in which the last batch ended */
    unsigned at;                     /* the page at which it ended */
};

/* --- which pages ------------------------------------------------------------------------------------- */

/* Bytes that it may still purge. */
static size_t excess(const struct wish *w)
{
    size_t bytes = (w->of == REFUSED ? 0 : hak_dirty_queue.waiting) + (w->of >= REFUSED ? hak_dirty_queue.refused : 0);
    return bytes > w->keep ? bytes - w->keep : 0;
}

/* The next superslab to purge; NULL: none. */
static struct hak_superslab *next_superslab(const struct wish *w)
{
    struct hak_dirty *waiting = hak_dirty_queue.lists[HAK_DIRTY_WAITING].first,
                     *refused = hak_dirty_queue.lists[HAK_DIRTY_REFUSED].first,
                     *next = w->of == REFUSED || (w->of == TRIM && !waiting) ? refused : waiting;
    if (!next || !w->left || !excess(w) || (w->of == IDLE && !hak_dirty_is_idle_since(next->checked_ms, w->now_ms)) ||
        (w->of == REFUSED && hak_clock_age(hak_dirty_queue.refused_ms, w->now_ms) < REFUSAL_MS))
        return NULL;
    return (struct hak_superslab *)next;
}

/* The cause for a purge of its idle pages. */
static enum hak_cause cause_of(const struct hak_superslab *s)
{
    if (s->state == HAK_CACHED)
        return hak_parts.release->cause;
    if (!s->slabs)
        return HAK_CAUSE_purge; /* only spans */
    return hak_options.ss_partial ? HAK_CAUSE_partial_release : NOT_NOW;
}

/* The dirty pages of the superslab that this purge takes. */
static uint64_t chosen(const struct hak_dirty *d, const struct wish *w)
{
    bool all = w->of != IDLE || hak_dirty_is_idle_since(d->put_ms, w->now_ms);
    return (all ? d->old : d->idle) & (w->of >= REFUSED ? d->old : d->old & ~d->refused);
}

/* Finds the first run of set bits from *first on; returns its length, 0 if there is none. */
static unsigned run_of(uint64_t pages, unsigned *first)
{
    uint64_t left = *first < 64 ? pages >> *first : 0;
    if (!left)
        return 0;
    *first += (unsigned)__builtin_ctzll(left);
    uint64_t behind = ~(pages >> *first);
    return behind ? (unsigned)__builtin_ctzll(behind) : 64;
}

/* How many pages of a run the batch can take; at least one if it is empty. */
static unsigned room_in_wish(unsigned pages, const struct wish *w)
{
    size_t most = hak_min(BATCH_BYTES - hak_min(BATCH_BYTES, batch.bytes), hak_align_up(excess(w), HAK_PAGE));
    if (batch.n == PIECES || !excess(w))
        return 0;
    return (unsigned)hak_min(pages, batch.n ? most / HAK_PAGE : hak_max(1, most / HAK_PAGE));
}

/* Shortens the beginning of a run to the end of a huge page. If it contains none, takes all of it, but only into an
 * empty batch. */
static unsigned cut_range(const struct hak_dirty *d, unsigned first, unsigned pages)
{
    uintptr_t end = (uintptr_t)d->base + (first + pages) * HAK_PAGE;
    unsigned over = (unsigned)(end % HAK_HUGE_PAGE / HAK_PAGE);
    return over < pages ? pages - over : batch.n ? 0 : pages;
}

/* Adds the chosen pages of a superslab, from where the last batch ended. True: all of them. A purge that splits a huge
 * page takes with it what no block ever used. */
static bool add_superslab(struct hak_superslab *s, struct wish *w)
{
    uint64_t choice = chosen(&s->pages, w);
    if (choice && hak_huge_page_is_on())
        choice |= hak_dirty_soil(&s->pages, s->free);
    for (unsigned run, pages; (run = run_of(choice, &w->at)); w->at += pages) {
        pages = room_in_wish(run, w);
        if (pages && pages < run)
            pages = cut_range(&s->pages, w->at, pages);
        if (!pages)
            return false;
        hak_pages_claim(s, w->at, pages);
        batch.pieces[batch.n++] = (struct piece){s, w->at, pages, 0};
        batch.bytes += pages * HAK_PAGE;
    }
    return true;
}

/* Fills a batch from as many superslabs as fit, all with the same cause. True: there may be more. */
static HAK_COLD bool fill_wish(struct wish *w)
{
    struct hak_superslab *s = NULL;
    for (unsigned visits = VISITS; visits && (s = next_superslab(w)); visits--) {
        enum hak_cause cause = w->of == TRIM ? HAK_CAUSE_trim : cause_of(s);
        if (w->superslab != s)
            w->at = 0;
        w->superslab = s;
        if (batch.n && cause != batch.cause && cause != NOT_NOW)
            return true;
        if (cause != NOT_NOW) {
            batch.cause = cause;
            if (!add_superslab(s, w))
                return true;
        }
        w->superslab = NULL;
        w->left--;
        hak_dirty_checked(&s->pages, w->now_ms);
    }
    return s;
}

/* --- to the kernel ----------------------------------------------------------------------------------- */

/* The pages of a piece that are not settled. */
static struct iovec range_of(const struct piece *x)
{
    return (struct iovec){x->superslab->pages.base + (x->first + x->settled) * HAK_PAGE,
                          (x->pages - x->settled) * HAK_PAGE};
}

/* Settles the next pages of a piece. The caller holds the lock. */
static void settle(struct piece *x, unsigned pages, bool gone)
{
    hak_dirty_settle(&x->superslab->pages, hak_page_bits(x->first + x->settled, pages), gone, batch.cause);
    x->settled += pages;
}

/* Purges the next pages of a piece by a call of their own; if the kernel refuses, each half of them. So the pages
 * around a locked page are purged. Returns the bytes purged. */
static HAK_COLD size_t send_apart(struct piece *x, unsigned pages, unsigned *splits)
{
    struct iovec range = {range_of(x).iov_base, pages * HAK_PAGE};
    bool gone = hak_parts.release->release(&range, 1, batch.cause) == range.iov_len;
    *splits += gone ? SPLITS : 0;
    if (gone || pages == 1 || !*splits) {
        hak_lock_acquire(&hak_pages_lock);
        settle(x, pages, gone);
        hak_lock_release(&hak_pages_lock);
        return gone ? range.iov_len : 0;
    }
    --*splits;
    size_t low = send_apart(x, pages / 2, splits);
    return low + send_apart(x, pages - pages / 2, splits);
}

/* The huge page that has a byte at the offset; bit i: the i-th of the superslab. */
static unsigned huge_page_at(const struct hak_dirty *d, size_t offset)
{
    return 1u << (((uintptr_t)d->base + offset) / HAK_HUGE_PAGE - (uintptr_t)d->base / HAK_HUGE_PAGE);
}

/* The huge page that is split if a purge ends at the offset. */
static unsigned torn_at(const struct hak_dirty *d, size_t offset)
{
    return ((uintptr_t)d->base + offset) % HAK_HUGE_PAGE ? huge_page_at(d, offset) : 0;
}

/* Keeps huge pages small, unless a heap of the program asked for them. Each becomes a mapping of its own, whose number
 * the kernel limits for a process. */
static HAK_COLD void keep_small(struct hak_dirty *d, unsigned torn)
{
    uintptr_t from = (uintptr_t)d->base, end = from + HAK_SUPERSLAB;
    if (HAK_LOAD_RELAXED(&hak_superslab_of(d->base)->advice) & HAK_ADVICE_HUGE)
        return;
    unsigned known = HAK_LOAD_RELAXED(&d->torn), counted = known >> HAK_DIRTY_COUNTED;
    for (torn &= ~known; torn && (torn & -torn & counted || hak_limit_split(2)); torn &= torn - 1) {
        HAK_OR_RELAXED(&d->torn, (torn & -torn) | (torn & -torn) << HAK_DIRTY_COUNTED);
        uintptr_t page = (from / HAK_HUGE_PAGE + (unsigned)__builtin_ctz(torn)) * HAK_HUGE_PAGE;
        uintptr_t low = hak_max(page, from), high = hak_min(page + HAK_HUGE_PAGE, end);
        hak_huge_page_keep_small((void *)low, high - low);
    }
}

static void keep_split_small(struct hak_dirty *d, struct iovec range)
{
    size_t offset = (size_t)((char *)range.iov_base - d->base);
    keep_small(d, torn_at(d, offset) | torn_at(d, offset + range.iov_len));
}

/* Purges all that is not settled by one call of the release policy. False: not all was purged. */
static bool send_together(void)
{
    struct iovec ranges[PIECES];
    size_t n = 0, bytes = 0;
    for (unsigned i = 0; i < batch.n; i++) {
        ranges[n] = range_of(&batch.pieces[i]);
        bytes += ranges[n].iov_len;
        n += ranges[n].iov_len != 0;
    }
    return !n || hak_parts.release->release(ranges, n, batch.cause) == bytes;
}

/* Purges the batch; returns the bytes purged. */
static HAK_COLD size_t send(void)
{
    unsigned splits = SPLITS;
    size_t bytes = 0;
    for (unsigned i = 0; i < batch.n && hak_huge_page_is_on(); i++)
        keep_split_small(&batch.pieces[i].superslab->pages, range_of(&batch.pieces[i]));
    bool gone = send_together();
    for (struct piece *x = batch.pieces; !gone && x < &batch.pieces[batch.n]; x++)
        if (x->settled < x->pages)
            bytes += send_apart(x, x->pages - x->settled, &splits);
    hak_lock_acquire(&hak_pages_lock);
    for (struct piece *x = batch.pieces; x < &batch.pieces[batch.n]; x++) {
        if (x->settled < x->pages)
            settle(x, x->pages - x->settled, true);
        hak_pages_settle(x->superslab, x->first, x->pages);
    }
    if (gone)
        bytes = batch.bytes;
    batch.n = 0;
    batch.bytes = 0;
    hak_lock_release(&hak_pages_lock);
    return bytes;
}

/* Purges, in as many batches as needed; returns the bytes purged. *more: it stopped early, since the time was over, a
 * fork waits, or the kernel refused a whole batch. */
static HAK_COLD size_t purge(struct wish w, bool *more)
{
    size_t bytes = 0;
    bool left = true;
    hak_lock_acquire(&hak_pages_lock);
    w.left = hak_dirty_length();
    if (w.of == EXCESS) { /* takes some more, so that the next freed page does not exceed it again */
        w.keep = hak_min(w.keep, hak_dirty_allowance(hak_clock_ms()));
        w.keep -= hak_min(w.keep / 4, EXTRA_BYTES);
    }
    for (*more = false; left && !*more;) {
        left = fill_wish(&w);
        hak_lock_release(&hak_pages_lock);
        bool any = batch.n;
        size_t sent = any ? send() : 0;
        bytes += sent;
        *more = left && ((w.end_ns && hak_os->clock_ns() >= w.end_ns) || (w.batches && !--w.batches) ||
                         (w.of != TRIM && ((any && !sent) || hak_lock_is_fork_waiting())));
        hak_lock_acquire(&hak_pages_lock);
    }
    hak_lock_release(&hak_pages_lock);
    return bytes;
}

/* Acquires the right to purge. False during a fork, and, unless `wait`, if another thread purges. Completes the batch
 * of a thread that does not exist in this child. */
static bool begin_purging(bool wait)
{
    if (wait && HAK_UNLIKELY(hak_lock_is_forking())) { /* waits until the fork is over */
        hak_lock_acquire(&hak_pages_lock);
        hak_lock_release(&hak_pages_lock);
    }
    if (HAK_UNLIKELY(hak_lock_is_forking()))
        return false;
    if (wait)
        hak_lock_acquire(&purging);
    else if (!hak_lock_try(&purging))
        return false;
    if (HAK_UNLIKELY(batch.n))
        send();
    return true;
}

/* --- the cache of superslabs ------------------------------------------------------------------------------ */

/* Evicts the next superslab beyond the limits from the cache. If it is dirty, purges a batch of its pages instead, and
 * it remains the next one. False: there is none. */
static bool evict_next(size_t keep, bool trim)
{
    hak_lock_acquire(&hak_pages_lock);
    struct hak_superslab *s = hak_pages_unwanted(keep, hak_clock_ms());
    if (s && s->pages.old) {
        struct wish all = {.of = EXCESS};
        batch.cause = trim ? HAK_CAUSE_trim : s->leaving ? hak_parts.release->cause : HAK_CAUSE_lru_evict;
        add_superslab(s, &all);
    } else if (s) {
        hak_pages_evict(s);
    }
    hak_lock_release(&hak_pages_lock);
    if (batch.n)
        send();
    return s;
}

/* True: more are to be evicted, but the steps are used up, or the time is over. */
static bool evict(size_t keep, bool trim, unsigned steps, uint64_t end_ns)
{
    bool over = false;
    if (!begin_purging(trim))
        return false;
    while (!over && evict_next(keep, trim))
        over = !--steps || hak_os->clock_ns() >= end_ns;
    hak_lock_release(&purging);
    return over;
}

/* --- entry points ------------------------------------------------------------------------------------ */

/* A free purges some more than the frees of this delay put back, within a bound: its time does not depend on what waits
 * when the allowance falls. The ticks purge the rest. With a release policy that purges at once, this waits for another
 * thread that purges: that thread may have visited these pages already. */
void hak_pages_bound(void)
{
    bool more = false;
    if (HAK_LIKELY(!HAK_LOAD_RELAXED(&hak_pages_due)))
        return;
    HAK_STORE_RELAXED(&hak_pages_due, false);
    hak_lock_acquire(&hak_pages_lock);
    size_t most = hak_dirty_most();
    unsigned batches = 2 + (unsigned)(hak_min(2 * hak_dirty_queue.put, MOST_BYTES) / BATCH_BYTES);
    hak_lock_release(&hak_pages_lock);
    if (begin_purging(hak_parts.release->at_once)) {
        uint64_t now = hak_clock_ms();
        purge((struct wish){.of = EXCESS, .now_ms = now, .keep = most, .batches = batches}, &more);
        if (more)
            HAK_STORE_RELAXED(&hak_purge_waits, true);
        else
            purge((struct wish){.of = IDLE, .now_ms = now, .end_ns = hak_os->clock_ns() + TICK_NS}, &(bool){false});
        hak_lock_release(&purging);
    }
    if (evict(SIZE_MAX, false, (unsigned)(MOST_BYTES / HAK_SUPERSLAB), UINT64_MAX) || more)
        HAK_STORE_RELAXED(&hak_pages_due, true);
}

/* The slab keeps its superslab, so this reads it without the page heap's lock; `torn` is written by the thread that
 * purges. */
bool hak_pages_purge_inside(const struct iovec *ranges, size_t count)
{
    if (!begin_purging(false))
        return false;
    for (size_t i = 0; i < count && hak_huge_page_is_on(); i++)
        keep_split_small(&hak_superslab_of(ranges[i].iov_base)->pages, ranges[i]);
    hak_parts.release->release(ranges, count, HAK_CAUSE_partial_release);
    hak_lock_release(&purging);
    return true;
}

HAK_COLD void hak_pages_keep_small(char *base, size_t bytes)
{
    size_t step = hak_min(HAK_SUPERSLAB, HAK_HUGE_PAGE);
    if (hak_options.thp == HAK_THP_ALWAYS || !begin_purging(false))
        return;
    for (char *p = base; p < base + bytes; p = (char *)hak_align_up((uintptr_t)p + 1, step)) {
        struct hak_dirty *d = &hak_superslab_of(p)->pages;
        keep_small(d, huge_page_at(d, (size_t)(p - d->base)));
    }
    hak_lock_release(&purging);
}

static uint64_t tick_ns(void)
{
    return HAK_LOAD_RELAXED(&hak_tick_share) * (uint64_t)TICK_NS;
}

bool hak_pages_tick(uint64_t now_ms)
{
    bool more;
    hak_lock_acquire(&hak_pages_lock);
    bool evicts = hak_pages_unwanted(SIZE_MAX, now_ms);
    hak_lock_release(&hak_pages_lock);
    if (evicts && evict(SIZE_MAX, false, UINT_MAX, hak_os->clock_ns() + tick_ns()))
        return true;
    if (!begin_purging(false))
        return false;
    uint64_t end_ns = hak_os->clock_ns() + tick_ns();
    purge((struct wish){.of = IDLE, .now_ms = now_ms, .end_ns = end_ns}, &more);
    if (!more)
        purge((struct wish){.of = REFUSED, .now_ms = now_ms, .end_ns = end_ns}, &more);
    if (!more)
        purge((struct wish){.of = EXCESS, .now_ms = now_ms, .end_ns = end_ns, .keep = SIZE_MAX}, &more);
    hak_lock_release(&purging);
    return more;
}

size_t hak_pages_trim(size_t keep)
{
    bool more;
    size_t bytes = 0;
    if (hak_huge_page_is_on())
        hak_pages_soil();
    if (begin_purging(true)) {
        bytes = purge((struct wish){.of = TRIM, .now_ms = hak_clock_ms(), .keep = keep}, &more);
        hak_lock_release(&purging);
    }
    evict(keep, true, UINT_MAX, UINT64_MAX);
    if (!keep && hak_limit() != SIZE_MAX)
        hak_pages_close();
    return bytes;
}
