/* SPDX-License-Identifier: MIT
 * See purge.h. */
#include "purge.h"

#include "core/base/clock.h"
#include "core/base/work.h"
#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/pages/page_heap.h"
#include "parts.h"

#define TICK_NS 200000u /* of a thread that came for something else */
#define PIECES 32u
#define BATCH_BYTES (2 * HAK_MIB)      /* some 100 us */
#define SPLITS 64u                     /* of refused ranges in a batch, to find the pages that are to blame */
#define KEPT_SMALL_MOST (64 * HAK_GIB) /* of the heap, which is half as many mappings as there are by default */
#define REFUSAL_MS 10000u              /* before a tick asks for them again */
#define NOT_NOW HAK_NCAUSES

static HAK_LOCK(purging, HAK_RANK_PURGE); /* from claim to settle */

/* What is claimed, and goes back to the kernel at once. Written under the page heap's lock, by who purges. */
static struct {
    enum hak_cause cause;
    unsigned n;
    size_t bytes;
    struct piece {
        struct hak_dirty *superslab;
        unsigned first, pages, settled; /* so many of the pages, the first ones, are */
    } pieces[PIECES];
} batch;

/* What a purge is after. */
struct wish {
    uint64_t now_ms;
    enum { IDLE, EXCESS, TRIM } of; /* what is idle; the oldest beyond the allowance; all, and what was refused */
    size_t keep;                    /* bytes that may go on waiting */
    unsigned left;                  /* superslabs of the queue to look through */
    uint64_t end_ns;                /* then it is over; 0: it takes as long as it takes */
    struct hak_dirty *superslab;    /* in which the last batch ended, */
    unsigned at;                    /* and the page */
};

/* --- which pages ------------------------------------------------------------------------------------- */

/* Bytes that it may still take. */
static size_t excess(const struct wish *w)
{
    size_t bytes = hak_dirty_queue.waiting + (w->of == EXCESS ? 0 : hak_dirty_queue.refused);
    return bytes > w->keep ? bytes - w->keep : 0;
}

/* The superslab whose turn it is. */
static struct hak_dirty *next_superslab(const struct wish *w)
{
    struct hak_dirty *d = hak_dirty_queue.first;
    if (!d || !w->left || !excess(w))
        return NULL;
    return w->of == IDLE && !hak_dirty_is_idle_since(d->checked_ms, w->now_ms) ? NULL : d;
}

/* Under which its idle pages go back. */
static enum hak_cause cause_of(const struct hak_dirty *d)
{
    switch (hak_pages_use(d)) {
    case HAK_PAGES_SLABS:
        return hak_options.ss_partial ? HAK_CAUSE_partial_release : NOT_NOW;
    case HAK_PAGES_SPANS:
        return HAK_CAUSE_purge;
    default:
        return hak_parts.release->cause;
    }
}

/* The dirty pages that it is after. */
static uint64_t chosen(const struct hak_dirty *d, const struct wish *w)
{
    bool all = w->of != IDLE || hak_dirty_is_idle_since(d->put_ms, w->now_ms);
    bool again = w->of == TRIM || (w->of == IDLE && hak_clock_age(d->refused_ms, w->now_ms) >= REFUSAL_MS);
    return (all ? d->old : d->idle) & (again ? ~(uint64_t)0 : ~d->refused);
}

/* The first run of them from *first on; its length, 0 without one. */
static unsigned run_of(uint64_t pages, unsigned *first)
{
    uint64_t left = *first < 64 ? pages >> *first : 0;
    if (!left)
        return 0;
    *first += (unsigned)__builtin_ctzll(left);
    uint64_t behind = ~(pages >> *first);
    return behind ? (unsigned)__builtin_ctzll(behind) : 64;
}

/* How many pages of a run the batch takes; one in any case, if it has none yet. */
static unsigned room_in_wish(unsigned pages, const struct wish *w)
{
    size_t most = hak_min(BATCH_BYTES - hak_min(BATCH_BYTES, batch.bytes), hak_align_up(excess(w), HAK_PAGE));
    if (batch.n == PIECES || !excess(w))
        return 0;
    return (unsigned)hak_min(pages, batch.n ? most / HAK_PAGE : hak_max(1, most / HAK_PAGE));
}

/* The beginning of a run, up to the end of a huge page; without one all of it, if the batch has nothing yet. */
static unsigned cut_range(const struct hak_dirty *d, unsigned first, unsigned pages)
{
    uintptr_t end = (uintptr_t)d->base + (first + pages) * HAK_PAGE;
    unsigned over = (unsigned)(end % HAK_HUGE_PAGE / HAK_PAGE);
    return over < pages ? pages - over : batch.n ? 0 : pages;
}

/* Adds what is chosen of a superslab, from the page on where the last batch ended. True: all of it. */
static bool add_superslab(struct hak_dirty *d, struct wish *w)
{
    uint64_t choice = chosen(d, w);
    for (unsigned run, pages; (run = run_of(choice, &w->at)); w->at += pages) {
        pages = room_in_wish(run, w);
        if (pages && pages < run)
            pages = cut_range(d, w->at, pages);
        if (!pages)
            return false;
        hak_pages_claim(d, w->at, pages);
        batch.pieces[batch.n++] = (struct piece){d, w->at, pages, 0};
        batch.bytes += pages * HAK_PAGE;
    }
    return true;
}

/* A batch for as many superslabs as it holds, all under one cause. */
static HAK_COLD void fill_wish(struct wish *w)
{
    struct hak_dirty *d;
    while ((d = next_superslab(w))) {
        enum hak_cause cause = w->of == TRIM ? HAK_CAUSE_trim : cause_of(d);
        if (w->superslab != d)
            w->at = 0;
        w->superslab = d;
        if (batch.n && cause != batch.cause && cause != NOT_NOW)
            return;
        if (cause != NOT_NOW) {
            batch.cause = cause;
            if (!add_superslab(d, w))
                return;
        }
        w->superslab = NULL;
        w->left--;
        hak_dirty_checked(d, w->now_ms);
    }
}

/* --- to the kernel ----------------------------------------------------------------------------------- */

/* What is not settled of it. */
static struct iovec range_of(const struct piece *x)
{
    return (struct iovec){x->superslab->base + (x->first + x->settled) * HAK_PAGE, (x->pages - x->settled) * HAK_PAGE};
}

/* The next pages of a piece. Under the lock. */
static void settle(struct piece *x, unsigned pages, bool gone)
{
    hak_dirty_settle(x->superslab, hak_page_bits(x->first + x->settled, pages), gone, batch.cause);
    x->settled += pages;
}

/* The next pages of a piece by themselves, and where that is refused their halves: so the pages around a locked one go.
 * Bytes that went. */
static HAK_COLD size_t send_apart(struct piece *x, unsigned pages, unsigned *splits)
{
    struct iovec range = {range_of(x).iov_base, pages * HAK_PAGE};
    bool gone = hak_parts.release->release(&range, 1, batch.cause) == range.iov_len;
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

/* The huge page of which a part stays where pages end at the offset; bit i: the i-th. */
static unsigned torn_at(const struct hak_dirty *d, size_t offset)
{
    uintptr_t end = (uintptr_t)d->base + offset;
    return end % HAK_HUGE_PAGE ? 1u << (end / HAK_HUGE_PAGE - (uintptr_t)d->base / HAK_HUGE_PAGE) : 0;
}

/* Those that were not torn before. Each is a mapping of its own then, of which the kernel has so many for a process. */
static HAK_COLD void keep_small(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct hak_space_stats space;
    unsigned torn = torn_at(d, first * HAK_PAGE) | torn_at(d, (first + pages) * HAK_PAGE);
    uintptr_t from = (uintptr_t)d->base, end = from + HAK_SUPERSLAB;
    torn &= ~d->torn;
    d->torn |= torn;
    if (!torn)
        return;
    hak_space_stats(&space);
    for (; torn && space.handed_out <= KEPT_SMALL_MOST; torn &= torn - 1) {
        uintptr_t page = (from / HAK_HUGE_PAGE + (unsigned)__builtin_ctz(torn)) * HAK_HUGE_PAGE;
        uintptr_t low = hak_max(page, from), high = hak_min(page + HAK_HUGE_PAGE, end);
        hak_huge_page_keep_small((void *)low, high - low);
    }
}

/* Whether all that is not settled went, by one call of the release policy. */
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

/* Bytes that went. */
static HAK_COLD size_t send(void)
{
    unsigned splits = SPLITS;
    size_t bytes = 0;
    for (unsigned i = 0; i < batch.n && hak_huge_page_is_on(); i++)
        keep_small(batch.pieces[i].superslab, batch.pieces[i].first, batch.pieces[i].pages);
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

/* Bytes that went by so many batches as it takes. *more: the time was over before, or a fork waits. */
static HAK_COLD size_t purge(struct wish w, bool *more)
{
    size_t bytes = 0;
    hak_lock_acquire(&hak_pages_lock);
    w.left = HAK_LOAD_RELAXED(&hak_dirty_queue.length);
    if (w.of == EXCESS) /* and so much more that it is not the same at the next page */
        w.keep = hak_min(w.keep, hak_dirty_allowance(hak_clock_ms())) / 4 * 3;
    for (*more = false;;) {
        fill_wish(&w);
        hak_lock_release(&hak_pages_lock);
        if (!batch.n)
            return bytes;
        bytes += send();
        *more = (w.end_ns && hak_os->clock_ns() >= w.end_ns) || (w.of != TRIM && hak_lock_is_fork_waiting());
        if (*more)
            return bytes;
        hak_lock_acquire(&hak_pages_lock);
    }
}

/* Between enter and leave nobody else purges; false where another thread does, unless it is to be waited for, and
 * during a fork. Ends what a thread had begun that is not in this child. */
static bool begin_purging(bool wait)
{
    if (wait && HAK_UNLIKELY(hak_lock_is_forking())) { /* until it is over */
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

/* The next superslab beyond the limits leaves the cache. A dirty one is purged before: a batch of its pages is sent,
 * and it is the next one again. False: there is none. */
static bool evict_next(size_t keep, bool trim)
{
    hak_lock_acquire(&hak_pages_lock);
    struct hak_dirty *d = hak_pages_unwanted(keep);
    if (d && d->old) {
        struct wish all = {.of = EXCESS};
        bool leaving = hak_pages_use(d) == HAK_PAGES_LEAVING;
        batch.cause = trim ? HAK_CAUSE_trim : leaving ? hak_parts.release->cause : HAK_CAUSE_lru_evict;
        add_superslab(d, &all);
    } else if (d) {
        hak_pages_evict(d);
    }
    hak_lock_release(&hak_pages_lock);
    if (batch.n)
        send();
    return d;
}

/* True: there are more, and the time is over. */
static bool evict(size_t keep, bool trim, uint64_t end_ns)
{
    bool over = false;
    if (!begin_purging(trim))
        return false;
    while (!over && evict_next(keep, trim))
        over = hak_os->clock_ns() >= end_ns;
    hak_lock_release(&purging);
    return over;
}

/* --- who asks for it --------------------------------------------------------------------------------- */

/* A release policy that gives back at once may not leave it to the other thread, which has looked already. */
void hak_pages_bound(void)
{
    bool more;
    if (HAK_LIKELY(!HAK_LOAD_RELAXED(&hak_pages_due)))
        return;
    HAK_STORE_RELAXED(&hak_pages_due, false);
    hak_lock_acquire(&hak_pages_lock);
    size_t most = hak_dirty_most();
    hak_lock_release(&hak_pages_lock);
    if (begin_purging(hak_parts.release->at_once)) {
        uint64_t now = hak_clock_ms();
        purge((struct wish){.of = EXCESS, .now_ms = now, .keep = most}, &more);
        if (more)
            HAK_STORE_RELAXED(&hak_purge_waits, true);
        else
            purge((struct wish){.of = IDLE, .now_ms = now, .end_ns = hak_os->clock_ns() + TICK_NS}, &more);
        hak_lock_release(&purging);
    }
    evict(SIZE_MAX, false, UINT64_MAX);
}

bool hak_pages_tick(uint64_t now_ms)
{
    bool more;
    hak_lock_acquire(&hak_pages_lock);
    bool evicts = hak_pages_unwanted(SIZE_MAX);
    hak_lock_release(&hak_pages_lock);
    if (evicts && evict(SIZE_MAX, false, hak_os->clock_ns() + TICK_NS))
        return true;
    if (!begin_purging(false))
        return false;
    uint64_t end_ns = hak_os->clock_ns() + TICK_NS;
    purge((struct wish){.of = IDLE, .now_ms = now_ms, .end_ns = end_ns}, &more);
    if (!more)
        purge((struct wish){.of = EXCESS, .now_ms = now_ms, .end_ns = end_ns, .keep = SIZE_MAX}, &more);
    hak_lock_release(&purging);
    return more;
}

size_t hak_pages_trim(size_t keep)
{
    bool more;
    size_t bytes = 0;
    if (begin_purging(true)) {
        bytes = purge((struct wish){.of = TRIM, .now_ms = hak_clock_ms(), .keep = keep}, &more);
        hak_lock_release(&purging);
    }
    evict(keep, true, UINT64_MAX);
    if (!keep && hak_limit() != SIZE_MAX)
        hak_pages_close();
    return bytes;
}
