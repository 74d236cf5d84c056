/* SPDX-License-Identifier: MIT
 * See partial.h. The counts are rough: they say when a sweep pays, and nothing else depends on them. */
#include "partial.h"

#include "core/slab_stack.h"

#define IDLE_PAGES 8 /* of a class may stand idle on its stack, at least, */
#define IDLE_SLABS 4 /* or slabs, if their threads ended */

static struct partial {
    struct hak_slab_stack stack;
    _Atomic(int32_t) idle;   /* slabs of the stack whose blocks are all back */
    _Atomic(bool) served;    /* an idle one since the last look at the clock */
    _Atomic(int32_t) length; /* of the stack when it was last swept */
} partials[HAK_NBINS];

struct hak_slab *hak_partial_take(struct hak_thread *t, unsigned bin)
{
    struct partial *p = &partials[bin];
    struct hak_slab *slab = hak_slab_stack_pop(&p->stack);
    if (slab && hak_slab_adopt(slab, t)) {
        atomic_fetch_sub_explicit(&p->idle, 1, memory_order_relaxed);
        atomic_store_explicit(&p->served, true, memory_order_relaxed);
    }
    return slab;
}

static void sweep(struct partial *p)
{
    int32_t length = 0;
    atomic_store_explicit(&p->idle, 0, memory_order_relaxed); /* before: what comes back from here on counts again */
    struct hak_slab *next, *slab = hak_slab_stack_take_all(&p->stack);
    for (; slab; slab = next, length++) {
        next = hak_slab_stack_next(slab);
        if (hak_slab_all_back(slab))
            hak_slab_reap(slab);
        else
            hak_slab_stack_push(&p->stack, slab);
    }
    atomic_store_explicit(&p->length, length, memory_order_relaxed);
}

/* Sweeps when so many are idle that each costs a look at few others. */
static void count_idle(struct partial *p, int32_t most)
{
    int32_t idle = atomic_fetch_add_explicit(&p->idle, 1, memory_order_relaxed) + 1;
    if (idle >= most + atomic_load_explicit(&p->length, memory_order_relaxed) / 4)
        sweep(p);
}

void hak_partial_note_idle(unsigned bin)
{
    count_idle(&partials[bin], IDLE_PAGES / hak_slab_pages[bin]);
}

/* An ended thread's slabs without live blocks wait for the next thread, which then touches the same pages. */
void hak_partial_put(struct hak_slab *slab)
{
    struct partial *p = &partials[slab->bin];
    hak_slab_stack_push(&p->stack, slab);
    if (hak_slab_all_back(slab)) /* perhaps somebody else's by now */
        count_idle(p, IDLE_SLABS);
}

static bool has_idle(const struct partial *p)
{
    return atomic_load_explicit(&p->idle, memory_order_relaxed) > 0;
}

void hak_partial_sweep_all(void)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        if (has_idle(&partials[bin]))
            sweep(&partials[bin]);
}

/* Idle slabs of classes that come and go stay: else each thread in turn would touch other pages. */
void hak_partial_sweep_unserved(void)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++)
        if (!atomic_exchange_explicit(&partials[bin].served, false, memory_order_relaxed) && has_idle(&partials[bin]))
            sweep(&partials[bin]);
}
