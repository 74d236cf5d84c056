/* SPDX-License-Identifier: MIT
 * See slab_cache.h. The counts are approximate: they bound memory and say when a sweep pays; nothing else depends on
 * them. */
#include "slab_cache.h"

#include <limits.h>

#include "core/base/work.h"
#include "core/pages/page_heap.h"
#include "core/pages/run_cache.h"
#include "core/parts/purge.h"
#include "core/parts/sparse.h"

#define IDLE_PAGES 8 /* at least so many pages of a class may be idle on its stack */
#define IDLE_SLABS 4 /* so many slabs, if their threads have ended */
#define STEP 16u     /* slabs that a sweep visits when too many are idle */
#define PASSES 2u    /* passes that a sweep begins after the current one */
#define TICK 256u    /* slabs that a tick visits in some 20 us */

/* Each class has two stacks of PARTIAL slabs. Threads take slabs from the front one; a sweep visits its slabs, and puts
 * those that are not idle on the other. When the front stack is empty the two swap, and a pass over all slabs begins,
 * if one is wanted. No idle slab is missed: a thread that makes a slab idle requests a pass; a thread that puts a slab
 * on a stack checks it once more, and requests a pass if it is idle by then. */
static struct class_cache {
    struct hak_slab_stack partial[2];
    _Atomic(int32_t) partials; /* slabs on both */
    _Atomic(int32_t) idle;     /* about how many of those have all blocks back */
    /* FRONT: the index of the front stack; PASSING: a pass is in progress; WANTED: another is wanted */
    _Atomic(unsigned) turn;
    _Atomic(bool) served; /* an idle slab served since the last tick */
    _Atomic(bool) reaped; /* an idle slab was found in this pass */
} caches[HAK_NCLASSES];

enum { FRONT = 1, PASSING = 2, WANTED = 4 };

/* While a thread holds this lock it may have removed slabs from lists: fork waits until they are on a list again, or in
 * the page heap. */
static HAK_LOCK(sweeping, HAK_RANK_SWEEP);

/* --- EMPTY slabs ---------------------------------------------------------------------------------------- */

static enum hak_run_kind kind_of(unsigned cls)
{
    return hak_parts_has_header(cls) ? HAK_RUNS_HEADERS : HAK_RUNS_COMMON;
}

struct hak_slab *hak_slab_cache_take_empty(unsigned cls)
{
    return hak_run_cache_take(kind_of(cls), hak_slab_pages[cls]);
}

/* What exceeds the allowance then is purged by hak_pages_bound, or by the tick. */
static void put_empty(struct hak_slab *slab)
{
    size_t most =
        hak_parts.release->at_once ? 0 : hak_min(hak_options.hot_slabs - 1, HAK_LOAD_RELAXED(&hak_pages_room));
    if (HAK_UNLIKELY(hak_options.log_free))
        hak_log("EMPTY slab %p of %u-byte blocks", (void *)slab->base, slab->stride);
    enum hak_run_kind kind = hak_tag_in_header_zone(slab->base) ? HAK_RUNS_HEADERS : HAK_RUNS_COMMON;
    if ((slab = hak_run_cache_put(kind, slab, most)))
        hak_pages_put(slab);
}

/* --- PARTIAL slabs -------------------------------------------------------------------------------------- */

static unsigned front_of(const struct class_cache *c)
{
    return HAK_LOAD_RELAXED(&c->turn) & FRONT;
}

static void want_pass(struct class_cache *c)
{
    HAK_OR_RELEASE(&c->turn, WANTED);
}

static struct hak_slab *pop_stack(struct class_cache *c)
{
    unsigned front = front_of(c);
    struct hak_slab *slab = hak_slab_stack_pop(&c->partial[front]);
    if (!slab)
        slab = hak_slab_stack_pop(&c->partial[!front]);
    if (slab)
        HAK_SUB_RELAXED(&c->partials, 1);
    return slab;
}

static void uncount_idle(struct class_cache *c)
{
    if (HAK_LOAD_RELAXED(&c->idle) > 0)
        HAK_SUB_RELAXED(&c->idle, 1);
}

struct hak_slab *hak_slab_cache_adopt(struct hak_heap *heap, unsigned cls)
{
    struct class_cache *c = &caches[cls];
    struct hak_slab *slab;
    while ((slab = pop_stack(c)) && !hak_slab_adopt(slab, heap))
        ;
    if (slab && slab->used == 0) {
        uncount_idle(c);
        HAK_STORE_RELAXED(&c->served, true);
    }
    return slab;
}

/* The front stack was empty in that turn, so its pass is over. Begins the next pass; false: none was wanted. Checks the
 * stack again, since a slab may have been put there, or other threads may have turned twice: then there will be another
 * pass. */
static bool next_pass(struct class_cache *c, unsigned turn)
{
    unsigned front = turn & FRONT;
    bool wanted = turn & WANTED;
    if (!HAK_CAS_ACQUIRE(&c->turn, &turn, wanted ? (front ^ FRONT) | PASSING : front))
        return true; /* another thread has begun it */
    if (!HAK_EXCHANGE_RELAXED(&c->reaped, false) || !wanted)
        HAK_STORE_RELAXED(&c->idle, 0); /* some slabs were counted twice */
    if (!hak_slab_stack_is_empty(&c->partial[front]))
        want_pass(c);
    return wanted;
}

/* Its last block may have come back: then a later pass finds it. */
static size_t purge_inside(struct hak_slab *slab, bool now)
{
    if (!hak_slab_visit(slab))
        return 0;
    size_t bytes = hak_sparse_is_due(slab, now) ? hak_sparse_purge(slab) : 0;
    hak_slab_leave(slab);
    return bytes;
}

/* Returns the number of system pages that it purged; each takes about as much time as a slab. */
static unsigned look_at_stack(struct class_cache *c, struct hak_slab *slab, bool now)
{
    unsigned pages = 0;
    if (hak_slab_all_back(slab)) {
        HAK_SUB_RELAXED(&c->partials, 1);
        uncount_idle(c);
        HAK_STORE_RELAXED(&c->reaped, true);
        hak_parts_empty_slab(slab);
        put_empty(slab);
    } else {
        pages = (unsigned)(purge_inside(slab, now) / HAK_SYSTEM_PAGE);
        hak_slab_stack_push(&c->partial[!front_of(c)], slab);
        if (hak_slab_all_back_by_now(slab))
            want_pass(c);
    }
    return pages;
}

/* Visits up to `most` slabs, less the pages purged, in up to `passes` passes, whatever other threads put in the
 * meantime; returns how many. When a fork waits it stops, and returns `most`. */
static unsigned sweep(struct class_cache *c, unsigned most, unsigned passes, bool now)
{
    unsigned n = 0, pages = 0;
    unsigned slabs = (unsigned)hak_min(most, (passes + 1) * ((size_t)HAK_LOAD_RELAXED(&c->partials) + 1));
    for (; n < slabs && n + pages < most; n++) {
        if (hak_lock_is_fork_waiting())
            return most;
        unsigned turn = HAK_LOAD_RELAXED(&c->turn);
        if (!(turn & (PASSING | WANTED)))
            break;
        struct hak_slab *slab = hak_slab_stack_pop(&c->partial[turn & FRONT]);
        if (slab)
            pages += look_at_stack(c, slab, now);
        else if (!passes-- || !next_pass(c, turn))
            break;
    }
    return (unsigned)hak_min(n + pages, most);
}

static void count_idle(struct class_cache *c, int32_t most)
{
    int32_t idle = HAK_ADD_RELAXED(&c->idle, 1) + 1;
    want_pass(c);
    if (idle >= most + HAK_LOAD_RELAXED(&c->partials) / 4 && hak_lock_try(&sweeping)) {
        sweep(c, STEP, 1, false);
        hak_lock_release(&sweeping);
        hak_pages_bound();
    }
}

void hak_slab_cache_all_back(struct hak_slab *slab, unsigned cls)
{
    (void)slab; /* another thread may own the slab by now */
    count_idle(&caches[cls], IDLE_PAGES / hak_slab_pages[cls]);
}

/* An ended thread's slabs without live blocks are kept for the next thread, which then touches the same pages. */
static void put_partial(struct hak_slab *slab)
{
    struct class_cache *c = &caches[slab->cls];
    HAK_ADD_RELAXED(&c->partials, 1);
    hak_slab_stack_push(&c->partial[front_of(c)], slab);
    if (hak_slab_all_back_by_now(slab)) /* another thread may own it by then */
        count_idle(c, IDLE_SLABS);
}

void hak_slab_cache_put(struct hak_slab *slab)
{
    if (hak_slab_state(slab) != HAK_SLAB_EMPTY) {
        put_partial(slab);
        return;
    }
    put_empty(slab);
    hak_pages_bound();
}

/* Unless `all`, idle slabs of classes with frequent use stay: otherwise each thread in turn would touch other pages. */
static bool sweep_classes(bool all, unsigned most)
{
    static unsigned next; /* the class at which the next call continues */
    unsigned left = most, cls = next;
    for (unsigned i = 0; i < HAK_NCLASSES && left; i++) {
        struct class_cache *c = &caches[cls++ % HAK_NCLASSES];
        bool served = HAK_LOAD_RELAXED(&c->served);
        if (served)
            HAK_STORE_RELAXED(&c->served, false);
        if (all || !served)
            left -= sweep(c, left, PASSES, all);
    }
    if (!left)
        next = cls;
    return !left;
}

bool hak_slab_cache_sweep(bool all, unsigned most)
{
    if (most == UINT_MAX)
        hak_lock_acquire(&sweeping);
    else if (!hak_lock_try(&sweeping))
        return false;
    bool more = sweep_classes(all, most);
    hak_lock_release(&sweeping);
    return more;
}

static void want_passes(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        want_pass(&caches[cls]);
}

void hak_slab_cache_flush(void)
{
    want_passes();
    while (hak_slab_cache_sweep(true, UINT_MAX))
        hak_lock_let_fork();
}

bool hak_slab_cache_tick(uint64_t now_ms)
{
    static _Atomic(uint64_t) passed_ms;
    bool slept = HAK_LOAD_RELAXED(&hak_slept_ms) == now_ms;
    unsigned share = HAK_LOAD_RELAXED(&hak_tick_share);
    bool more = hak_slab_cache_sweep(slept, share * TICK);
    if (slept || hak_clock_age(HAK_LOAD_RELAXED(&passed_ms), now_ms) >= hak_purge_delay_ms()) {
        want_passes();
        HAK_STORE_RELAXED(&passed_ms, now_ms);
    }
    return more && share > 1;
}
