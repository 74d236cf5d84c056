/* SPDX-License-Identifier: MIT
 * See partial.h. The counts are rough: they say when a sweep pays, and nothing else depends on them. */
#include "partial.h"

#include <limits.h>

#include "core/plugin.h"

#define IDLE_PAGES 8 /* of a class may stand idle on its stack, at least, */
#define IDLE_SLABS 4 /* or slabs, if their threads ended */
#define STEP 16u     /* slabs that are looked at when too many are idle */
#define PASSES 2u    /* that a sweep begins, after the one that others began */

/* Two stacks: from the front one slabs are taken, and looked at by a sweep, which puts what is not idle on the other.
 * When the front one is empty they change their roles, and a pass over all slabs begins, if one is wanted. No idle slab
 * is passed over: who makes one idle asks for a pass; who puts one on a stack looks at it once more, and asks if it is
 * idle by then. */
static struct partial {
    struct hak_slab_stack stacks[2];
    _Atomic(unsigned) turn;  /* FRONT: the number of the front one; PASSING: a pass goes on; WANTED: another one */
    _Atomic(int32_t) idle;   /* slabs whose blocks are all back, about */
    _Atomic(int32_t) length; /* of both stacks */
    _Atomic(bool) served;    /* an idle one since the last tick */
    _Atomic(bool) reaped;    /* one in this pass */
} partials[HAK_NCLASSES];

enum { FRONT = 1, PASSING = 2, WANTED = 4 };

static HAK_LOCK(sweeping, HAK_RANK_SWEEP); /* a slab may be in hand: fork waits until it is on a list again */

static unsigned front_of(const struct partial *p)
{
    return HAK_LOAD_RELAXED(&p->turn) & FRONT;
}

static void want_pass(struct partial *p)
{
    HAK_OR_RELEASE(&p->turn, WANTED);
}

static struct hak_slab *pop(struct partial *p)
{
    unsigned front = front_of(p);
    struct hak_slab *slab = hak_slab_stack_pop(&p->stacks[front]);
    if (!slab)
        slab = hak_slab_stack_pop(&p->stacks[!front]);
    if (slab)
        HAK_SUB_RELAXED(&p->length, 1);
    return slab;
}

static void uncount_idle(struct partial *p)
{
    if (HAK_LOAD_RELAXED(&p->idle) > 0)
        HAK_SUB_RELAXED(&p->idle, 1);
}

struct hak_slab *hak_partial_take(struct hak_thread *t, unsigned cls)
{
    struct partial *p = &partials[cls];
    struct hak_slab *slab = pop(p);
    if (slab && hak_slab_adopt(slab, t)) {
        uncount_idle(p);
        HAK_STORE_RELAXED(&p->served, true);
    }
    return slab;
}

/* --- sweeps ------------------------------------------------------------------------------------------- */

/* The front stack was empty in that turn, so its pass is over. Begins the next one; false: none was wanted. The stack is
 * looked at again: a slab may have come since, or others may have turned twice meanwhile. Then there will be another. */
static bool next_pass(struct partial *p, unsigned turn)
{
    unsigned front = turn & FRONT;
    bool wanted = turn & WANTED;
    if (!HAK_CAS_ACQUIRE(&p->turn, &turn, wanted ? (front ^ FRONT) | PASSING : front))
        return true; /* somebody else was first */
    if (!HAK_EXCHANGE_RELAXED(&p->reaped, false) || !wanted)
        HAK_STORE_RELAXED(&p->idle, 0); /* some were counted twice */
    if (!hak_slab_stack_is_empty(&p->stacks[front]))
        want_pass(p);
    return wanted;
}

static void look_at(struct partial *p, struct hak_slab *slab)
{
    if (hak_slab_all_back(slab)) {
        HAK_SUB_RELAXED(&p->length, 1);
        uncount_idle(p);
        HAK_STORE_RELAXED(&p->reaped, true);
        hak_parts_reap_slab(slab);
    } else {
        hak_slab_stack_push(&p->stacks[!front_of(p)], slab);
        if (hak_slab_all_back_by_now(slab))
            want_pass(p);
    }
}

/* Looks at up to so many slabs, in so many passes, whatever others put meanwhile; returns how many it was. All of them,
 * when a fork waits. */
static unsigned sweep(struct partial *p, unsigned most, unsigned passes)
{
    unsigned n = 0, all = most;
    most = (unsigned)hak_min(most, (passes + 1) * ((size_t)HAK_LOAD_RELAXED(&p->length) + 1));
    while (n < most) {
        if (hak_lock_is_fork_waiting())
            return all;
        unsigned turn = HAK_LOAD_RELAXED(&p->turn);
        if (!(turn & (PASSING | WANTED)))
            break;
        struct hak_slab *slab = hak_slab_stack_pop(&p->stacks[turn & FRONT]);
        if (slab)
            look_at(p, slab);
        else if (!passes-- || !next_pass(p, turn))
            break;
        n++;
    }
    return n;
}

static void count_idle(struct partial *p, int32_t most)
{
    int32_t idle = HAK_ADD_RELAXED(&p->idle, 1) + 1;
    want_pass(p);
    if (idle >= most + HAK_LOAD_RELAXED(&p->length) / 4 && hak_lock_try(&sweeping)) {
        sweep(p, STEP, 1);
        hak_lock_release(&sweeping);
    }
}

void hak_partial_note_idle(unsigned cls)
{
    count_idle(&partials[cls], IDLE_PAGES / hak_slab_pages[cls]);
}

/* An ended thread's slabs without live blocks wait for the next thread, which then touches the same pages. */
void hak_partial_put(struct hak_slab *slab)
{
    struct partial *p = &partials[slab->cls];
    HAK_ADD_RELAXED(&p->length, 1);
    hak_slab_stack_push(&p->stacks[front_of(p)], slab);
    if (hak_slab_all_back_by_now(slab)) /* perhaps somebody else's by then */
        count_idle(p, IDLE_SLABS);
}

/* Idle slabs of classes that come and go stay, if they are not to go all: else each thread in turn would touch other
 * pages. */
static bool sweep_classes(bool all, unsigned most)
{
    static unsigned next; /* class, for what a call did not come to */
    unsigned left = most, cls = next;
    for (unsigned i = 0; i < HAK_NCLASSES && left; i++) {
        struct partial *p = &partials[cls++ % HAK_NCLASSES];
        bool served = HAK_LOAD_RELAXED(&p->served);
        if (served)
            HAK_STORE_RELAXED(&p->served, false);
        if (all || !served)
            left -= sweep(p, left, PASSES);
    }
    if (!left)
        next = cls;
    return !left;
}

bool hak_partial_sweep(bool all, unsigned most)
{
    if (most == UINT_MAX)
        hak_lock_acquire(&sweeping);
    else if (!hak_lock_try(&sweeping))
        return false;
    bool more = sweep_classes(all, most);
    hak_lock_release(&sweeping);
    return more;
}
