/* SPDX-License-Identifier: MIT
 * See purge.h. */
#include "purge.h"

#include "core/base/clock.h"
#include "core/base/work.h"
#include "core/os/huge_page.h"
#include "core/pages/space.h"
#include "parts.h"

#define BATCH_BYTES (2 * HAK_MIB) /* some 100 us */
#define SPLITS 64u                /* of refused ranges in a batch, to find the pages that are to blame */
#define KEPT_SMALL_MOST (64 * HAK_GIB) /* of the heap, which is half as many mappings as there are by default */
#define REFUSAL_MS 10000u         /* before a tick asks for them again */

/* What a purge is after. */
struct wish {
    uint64_t now_ms;
    enum { IDLE, EXCESS, TRIM } of; /* what is idle; the oldest beyond the allowance; all, and what was refused */
    size_t keep;     /* bytes that may go on waiting */
    unsigned left;   /* regions of the queue to look through */
    uint64_t end_ns; /* then it is over; 0: it takes as long as it takes */
    struct hak_dirty *region; /* in which the last batch ended, */
    unsigned at;              /* and the page */
};

/* --- which pages ------------------------------------------------------------------------------------- */

size_t hak_purge_allowance(struct hak_purger *p)
{
    return hak_dirty_allowance(p->queue, hak_clock_ms(), hak_purge_delay_ms());
}

static bool is_idle_since(uint64_t then_ms, uint64_t now_ms)
{
    return hak_clock_age(then_ms, now_ms) >= hak_purge_delay_ms() || then_ms <= HAK_LOAD_RELAXED(&hak_slept_ms);
}

/* Bytes that it may still take. */
static size_t excess(const struct hak_dirty_queue *q, const struct wish *w)
{
    size_t bytes = q->waiting + (w->of == EXCESS ? 0 : q->refused);
    return bytes > w->keep ? bytes - w->keep : 0;
}

/* The region whose turn it is. */
static struct hak_dirty *next_region(const struct hak_purger *p, const struct wish *w)
{
    struct hak_dirty *d = p->queue->first;
    if (!d || !w->left || !excess(p->queue, w))
        return NULL;
    return w->of == IDLE && !is_idle_since(d->checked_ms, w->now_ms) ? NULL : d;
}

static struct hak_dirty_choice choose(const struct hak_dirty *d, const struct wish *w)
{
    return (struct hak_dirty_choice){
        .all = w->of != IDLE || is_idle_since(d->put_ms, w->now_ms),
        .again = w->of == TRIM || (w->of == IDLE && hak_clock_age(d->refused_ms, w->now_ms) >= REFUSAL_MS),
    };
}

/* How many pages of a run the batch takes; one in any case, if it has none yet. */
static unsigned room(const struct hak_purge_batch *b, const struct hak_dirty *d, unsigned pages, const struct wish *w)
{
    size_t most = hak_min(BATCH_BYTES - hak_min(BATCH_BYTES, b->bytes), hak_align_up(excess(d->queue, w), HAK_PAGE));
    if (b->n == HAK_PURGE_PIECES || !excess(d->queue, w))
        return 0;
    return (unsigned)hak_min(pages, b->n ? most / d->unit : hak_max(1, most / d->unit));
}

static void add(struct hak_purger *p, struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct hak_purge_batch *b = &p->open;
    if (!p->claim(d, first, pages))
        return;
    hak_dirty_claim(d, first, pages);
    b->pieces[b->n++] = (struct hak_purge_piece){d, first, pages, 0};
    b->bytes += pages * d->unit;
}

/* The beginning of a run, up to the end of a huge page; without one all of it, if the batch has nothing yet. */
static unsigned cut(const struct hak_purge_batch *b, const struct hak_dirty *d, unsigned first, unsigned pages)
{
    uintptr_t end = (uintptr_t)d->base + (first + pages) * d->unit;
    unsigned over = (unsigned)(end % HAK_HUGE_PAGE / d->unit);
    return over < pages ? pages - over : b->n ? 0 : pages;
}

/* Adds what is chosen of a region, from the page on where the last batch ended. True: all of it. */
static bool add_region(struct hak_purger *p, struct hak_dirty *d, struct wish *w)
{
    const struct hak_purge_batch *b = &p->open;
    struct hak_dirty_choice choice = choose(d, w);
    for (unsigned run, pages; (run = hak_dirty_run(d, &w->at, choice)); w->at += pages) {
        pages = room(b, d, run, w);
        if (pages && pages < run)
            pages = cut(b, d, w->at, pages);
        if (!pages)
            return false;
        add(p, d, w->at, pages);
    }
    return true;
}

/* A batch for as many regions as it holds, all under one cause. */
static HAK_COLD void fill(struct hak_purger *p, struct wish *w)
{
    struct hak_purge_batch *b = &p->open;
    struct hak_dirty *d;
    while ((d = next_region(p, w))) {
        enum hak_cause cause = w->of == TRIM ? HAK_CAUSE_trim : p->cause(d);
        if (w->region != d)
            w->at = 0;
        w->region = d;
        if (b->n && cause != b->cause && cause != HAK_PURGE_NOT_NOW)
            return;
        if (cause != HAK_PURGE_NOT_NOW) {
            b->cause = cause;
            if (!add_region(p, d, w))
                return;
        }
        w->region = NULL;
        w->left--;
        hak_dirty_checked(d, w->now_ms);
    }
}

/* --- to the kernel ----------------------------------------------------------------------------------- */

/* What is not settled of it. */
static struct iovec range_of(const struct hak_purge_piece *x)
{
    size_t unit = x->region->unit;
    return (struct iovec){x->region->base + (x->first + x->settled) * unit, (x->pages - x->settled) * unit};
}

/* The next pages of a piece. */
static void settle(const struct hak_purger *p, struct hak_purge_piece *x, unsigned pages, bool gone)
{
    hak_lock_acquire(p->lock);
    hak_dirty_settle(x->region, x->first + x->settled, pages, gone, p->open.cause);
    x->settled += pages;
    hak_lock_release(p->lock);
}

/* The next pages of a piece by themselves, and where that is refused their halves: so the pages around a locked one go.
 * Bytes that went. */
static HAK_COLD size_t send_apart(const struct hak_purger *p, struct hak_purge_piece *x, unsigned pages, unsigned *splits)
{
    struct iovec range = {range_of(x).iov_base, pages * x->region->unit};
    bool gone = hak_parts.release->release(&range, 1, p->open.cause) == range.iov_len;
    if (gone || pages == 1 || !*splits) {
        settle(p, x, pages, gone);
        return gone ? range.iov_len : 0;
    }
    --*splits;
    size_t low = send_apart(p, x, pages / 2, splits);
    return low + send_apart(p, x, pages - pages / 2, splits);
}

/* Each is a mapping of its own then, of which the kernel has so many for a process. */
static HAK_COLD void keep_small(const struct hak_purge_piece *x)
{
    struct hak_space_stats space;
    uint64_t torn = hak_huge_page_is_on() ? hak_dirty_tear(x->region, x->first, x->pages) : 0;
    uintptr_t from = (uintptr_t)x->region->base, end = from + x->region->pages * x->region->unit;
    if (!torn)
        return;
    hak_space_stats(&space);
    for (; torn && space.handed_out <= KEPT_SMALL_MOST; torn &= torn - 1) {
        uintptr_t page = (from / HAK_HUGE_PAGE + (unsigned)__builtin_ctzll(torn)) * HAK_HUGE_PAGE;
        uintptr_t low = hak_max(page, from), high = hak_min(page + HAK_HUGE_PAGE, end);
        hak_huge_page_keep_small((void *)low, high - low);
    }
}

/* Whether all that is not settled went, by one call of the release policy. */
static bool send_together(const struct hak_purge_batch *b)
{
    struct iovec ranges[HAK_PURGE_PIECES];
    size_t n = 0, bytes = 0;
    for (unsigned i = 0; i < b->n; i++) {
        ranges[n] = range_of(&b->pieces[i]);
        bytes += ranges[n].iov_len;
        n += ranges[n].iov_len != 0;
    }
    return !n || hak_parts.release->release(ranges, n, b->cause) == bytes;
}

/* Bytes that went. */
static HAK_COLD size_t send(struct hak_purger *p)
{
    struct hak_purge_batch *b = &p->open;
    unsigned splits = SPLITS;
    size_t bytes = 0;
    for (unsigned i = 0; i < b->n; i++)
        keep_small(&b->pieces[i]);
    bool gone = send_together(b);
    for (unsigned i = 0; !gone && i < b->n; i++)
        if (b->pieces[i].settled < b->pieces[i].pages)
            bytes += send_apart(p, &b->pieces[i], b->pieces[i].pages - b->pieces[i].settled, &splits);
    hak_lock_acquire(p->lock);
    for (unsigned i = 0; i < b->n; i++) {
        struct hak_purge_piece x = b->pieces[i];
        if (gone && x.settled < x.pages)
            hak_dirty_settle(x.region, x.first + x.settled, x.pages - x.settled, true, b->cause);
        p->settle(x.region, x.first, x.pages);
    }
    if (gone)
        bytes = b->bytes;
    b->n = 0;
    b->bytes = 0;
    hak_lock_release(p->lock);
    return bytes;
}

/* Bytes that went by so many batches as it takes. *more: the time was over before, or a fork waits. */
static HAK_COLD size_t purge(struct hak_purger *p, struct wish *w, bool *more)
{
    size_t bytes = 0;
    hak_lock_acquire(p->lock);
    w->left = p->queue->regions;
    if (w->of == EXCESS) /* and so much more that it is not the same at the next page */
        w->keep = hak_min(w->keep, hak_purge_allowance(p)) / 4 * 3;
    for (*more = false;;) {
        fill(p, w);
        hak_lock_release(p->lock);
        if (!p->open.n)
            return bytes;
        bytes += send(p);
        *more = (w->end_ns && hak_os->clock_ns() >= w->end_ns) || (w->of != TRIM && hak_lock_is_fork_waiting());
        if (*more)
            return bytes;
        hak_lock_acquire(p->lock);
    }
}

/* --- who asks for it --------------------------------------------------------------------------------- */

static void let_fork_end(struct hak_purger *p)
{
    hak_lock_acquire(p->lock);
    hak_lock_release(p->lock);
}

/* Ends what a thread had begun that is not in this child. */
bool hak_purge_enter(struct hak_purger *p, bool wait)
{
    if (wait && HAK_UNLIKELY(hak_lock_is_forking()))
        let_fork_end(p);
    if (HAK_UNLIKELY(hak_lock_is_forking()))
        return false;
    if (wait)
        hak_lock_acquire(p->purging);
    else if (!hak_lock_try(p->purging))
        return false;
    if (HAK_UNLIKELY(p->open.n))
        send(p);
    return true;
}

bool hak_purge_tick_of(struct hak_purger *p, uint64_t now_ms)
{
    bool more;
    if (!hak_purge_enter(p, false))
        return false;
    uint64_t end_ns = hak_os->clock_ns() + HAK_PURGE_TICK_NS;
    purge(p, &(struct wish){.now_ms = now_ms, .end_ns = end_ns, .of = IDLE}, &more);
    if (!more)
        purge(p, &(struct wish){.now_ms = now_ms, .end_ns = end_ns, .of = EXCESS, .keep = SIZE_MAX}, &more);
    hak_purge_leave(p);
    return more;
}

bool hak_purge_is_due(struct hak_purger *p)
{
    const struct hak_dirty *oldest = p->queue->first;
    return oldest && (p->queue->waiting > hak_purge_allowance(p) || is_idle_since(oldest->checked_ms, hak_clock_ms()));
}

/* A release policy that gives back at once may not leave it to the other thread, which has looked already. */
void hak_purge_due(struct hak_purger *p, size_t most)
{
    bool more;
    uint64_t now = hak_clock_ms();
    if (!hak_purge_enter(p, hak_parts.release->at_once))
        return;
    purge(p, &(struct wish){.now_ms = now, .of = EXCESS, .keep = most}, &more);
    if (more)
        HAK_STORE_RELAXED(&hak_purge_waits, true);
    else
        purge(p, &(struct wish){.now_ms = now, .end_ns = hak_os->clock_ns() + HAK_PURGE_TICK_NS, .of = IDLE}, &more);
    hak_purge_leave(p);
}

size_t hak_purge_trim(struct hak_purger *p, size_t keep)
{
    bool more;
    struct wish w = {.now_ms = hak_clock_ms(), .of = TRIM, .keep = keep};
    if (!hak_purge_enter(p, true))
        return 0;
    size_t bytes = purge(p, &w, &more);
    hak_purge_leave(p);
    return bytes;
}

bool hak_purge_region(struct hak_purger *p, struct hak_dirty *d, enum hak_cause cause)
{
    struct wish w = {.of = EXCESS};
    hak_lock_acquire(p->lock);
    p->open.cause = cause;
    add_region(p, d, &w);
    bool any = p->open.n;
    hak_lock_release(p->lock);
    if (any)
        send(p);
    return any;
}

void hak_purge_leave(struct hak_purger *p)
{
    hak_lock_release(p->purging);
}
