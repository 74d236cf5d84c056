/* SPDX-License-Identifier: MIT
 * See partial.h. The counts are rough: they say when a sweep pays, and nothing else depends on them. */
#include "partial.h"

#include "core/plugin.h"

#define IDLE_PAGES 8 /* of a class may stand idle on its stack, at least, */
#define IDLE_SLABS 4 /* or slabs, if their threads ended */
#define STEP 16u     /* slabs that are looked at when too many are idle */

/* Two stacks: from the front one slabs are taken, and looked at by a sweep, which puts what is not idle on the other.
 * When the front one is empty they change their roles. */
static struct partial {
    struct hak_slab_stack stacks[2];
    _Atomic(unsigned) front;
    _Atomic(int32_t) idle;   /* slabs whose blocks are all back */
    _Atomic(int32_t) length; /* of both stacks */
    _Atomic(bool) served;    /* an idle one since the last tick */
    _Atomic(bool) reaped;    /* one, since the stacks changed their roles */
} partials[HAK_NCLASSES];

static struct hak_slab *pop(struct partial *p)
{
    unsigned front = HAK_LOAD_RELAXED(&p->front);
    struct hak_slab *slab = hak_slab_stack_pop(&p->stacks[front]);
    if (!slab)
        slab = hak_slab_stack_pop(&p->stacks[!front]);
    if (slab)
        HAK_SUB_RELAXED(&p->length, 1);
    return slab;
}

struct hak_slab *hak_partial_take(struct hak_thread *t, unsigned cls)
{
    struct partial *p = &partials[cls];
    struct hak_slab *slab = pop(p);
    if (slab && hak_slab_adopt(slab, t)) {
        HAK_SUB_RELAXED(&p->idle, 1);
        HAK_STORE_RELAXED(&p->served, true);
    }
    return slab;
}

/* --- sweeps ------------------------------------------------------------------------------------------- */

/* After a pass that found none idle, what was counted as such is not there: a slab may have been counted twice. */
static void change_roles(struct partial *p)
{
    if (!HAK_EXCHANGE_RELAXED(&p->reaped, false))
        HAK_STORE_RELAXED(&p->idle, 0);
    HAK_STORE_RELAXED(&p->front, !HAK_LOAD_RELAXED(&p->front));
}

static void look_at(struct partial *p, struct hak_slab *slab)
{
    if (hak_slab_all_back(slab)) {
        HAK_SUB_RELAXED(&p->length, 1);
        HAK_SUB_RELAXED(&p->idle, 1);
        HAK_STORE_RELAXED(&p->reaped, true);
        hak_parts_reap_slab(slab);
    } else {
        hak_slab_stack_push(&p->stacks[!HAK_LOAD_RELAXED(&p->front)], slab);
    }
}

static bool has_idle(const struct partial *p)
{
    return HAK_LOAD_RELAXED(&p->idle) > 0;
}

/* Looks at up to so many slabs, at each once; returns how many it was. */
static unsigned sweep(struct partial *p, unsigned most)
{
    int32_t length = HAK_LOAD_RELAXED(&p->length);
    unsigned n = 0;
    most = (unsigned)hak_min(most, (size_t)(length > 0 ? length : 0));
    while (n < most && has_idle(p)) {
        struct hak_slab *slab = hak_slab_stack_pop(&p->stacks[HAK_LOAD_RELAXED(&p->front)]);
        if (slab)
            look_at(p, slab);
        else
            change_roles(p);
        n++;
    }
    return n;
}

static void count_idle(struct partial *p, int32_t most)
{
    int32_t idle = HAK_ADD_RELAXED(&p->idle, 1) + 1;
    if (idle >= most + HAK_LOAD_RELAXED(&p->length) / 4)
        sweep(p, STEP);
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
    hak_slab_stack_push(&p->stacks[HAK_LOAD_RELAXED(&p->front)], slab);
    if (hak_slab_all_back(slab)) /* perhaps somebody else's by now */
        count_idle(p, IDLE_SLABS);
}

/* Idle slabs of classes that come and go stay, if they are not to go all: else each thread in turn would touch other
 * pages. */
bool hak_partial_sweep(bool all, unsigned most)
{
    static _Atomic(unsigned) next; /* class, for what a call did not come to */
    unsigned left = most;
    for (unsigned i = 0; i < HAK_NCLASSES && left; i++) {
        struct partial *p = &partials[HAK_ADD_RELAXED(&next, 1) % HAK_NCLASSES];
        bool spared = HAK_EXCHANGE_RELAXED(&p->served, false) && !all;
        if (!spared && has_idle(p))
            left -= (unsigned)hak_min(left, sweep(p, left));
    }
    return !left;
}
