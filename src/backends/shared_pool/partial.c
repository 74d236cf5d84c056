/* SPDX-License-Identifier: MIT
 * See partial.h. The counts are rough: they say when a sweep pays, and nothing else depends on them. */
#include "partial.h"

#include "core/pages/slab_stack.h"
#include "core/parts/parts.h"

#define IDLE_PAGES 8 /* of a class may stand idle on its stack, at least, */
#define IDLE_SLABS 4 /* or slabs, if their threads ended */

static struct partial {
    struct hak_slab_stack stack;
    _Atomic(int32_t) idle;   /* slabs of the stack whose blocks are all back */
    _Atomic(bool) served;    /* an idle one since the last look at the clock */
    _Atomic(int32_t) length; /* of the stack when it was last swept */
} partials[HAK_NCLASSES];

struct hak_slab *hak_partial_take(struct hak_thread *t, unsigned cls)
{
    struct partial *p = &partials[cls];
    struct hak_slab *slab = hak_slab_stack_pop(&p->stack);
    if (slab && hak_slab_adopt(slab, t)) {
        HAK_SUB_RELAXED(&p->idle, 1);
        HAK_STORE_RELAXED(&p->served, true);
    }
    return slab;
}

static void sweep(struct partial *p)
{
    int32_t length = 0;
    HAK_STORE_RELAXED(&p->idle, 0); /* before: what comes back from here on counts again */
    struct hak_slab *next, *slab = hak_slab_stack_take_all(&p->stack);
    for (; slab; slab = next, length++) {
        next = hak_slab_stack_next(slab);
        if (hak_slab_all_back(slab))
            hak_parts_reap_slab(slab);
        else
            hak_slab_stack_push(&p->stack, slab);
    }
    HAK_STORE_RELAXED(&p->length, length);
}

/* Sweeps when so many are idle that each costs a look at few others. */
static void count_idle(struct partial *p, int32_t most)
{
    int32_t idle = HAK_ADD_RELAXED(&p->idle, 1) + 1;
    if (idle >= most + HAK_LOAD_RELAXED(&p->length) / 4)
        sweep(p);
}

void hak_partial_note_idle(unsigned cls)
{
    count_idle(&partials[cls], IDLE_PAGES / hak_slab_pages[cls]);
}

/* An ended thread's slabs without live blocks wait for the next thread, which then touches the same pages. */
void hak_partial_put(struct hak_slab *slab)
{
    struct partial *p = &partials[slab->cls];
    hak_slab_stack_push(&p->stack, slab);
    if (hak_slab_all_back(slab)) /* perhaps somebody else's by now */
        count_idle(p, IDLE_SLABS);
}

static bool has_idle(const struct partial *p)
{
    return HAK_LOAD_RELAXED(&p->idle) > 0;
}

void hak_partial_sweep_all(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (has_idle(&partials[cls]))
            sweep(&partials[cls]);
}

/* Idle slabs of classes that come and go stay: else each thread in turn would touch other pages. */
void hak_partial_sweep_unserved(void)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (!HAK_EXCHANGE_RELAXED(&partials[cls].served, false) && has_idle(&partials[cls]))
            sweep(&partials[cls]);
}
