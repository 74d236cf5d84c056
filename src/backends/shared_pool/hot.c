/* SPDX-License-Identifier: MIT
 * See hot.h. The counts are rough: they bound memory, and nothing depends on them otherwise. */
#include "hot.h"

#include "core/dispatch.h"
#include "core/slab_stack.h"

static struct hot {
    struct hak_slab_stack stack;
    _Atomic(int32_t) count;
} hot[HAK_NBINS];

static int32_t limit(void)
{
    return hak_dispatch.release->at_once ? 1 : (int32_t)hak_dispatch.options.hot_slabs;
}

static struct hak_slab *take_all(struct hot *h)
{
    atomic_store_explicit(&h->count, 0, memory_order_relaxed);
    return hak_slab_stack_take_all(&h->stack);
}

struct hak_slab *hak_hot_pop(unsigned bin)
{
    struct hak_slab *slab = hak_slab_stack_pop(&hot[bin].stack);
    if (slab)
        atomic_fetch_sub_explicit(&hot[bin].count, 1, memory_order_relaxed);
    return slab;
}

struct hak_slab *hak_hot_pop_similar(unsigned pages, bool header)
{
    for (unsigned bin = 0; bin < HAK_NBINS; bin++) {
        if (hak_slab_stack_is_empty(&hot[bin].stack) || hak_slab_pages[bin] != pages ||
            hak_bin_has_header(bin) != header)
            continue;
        struct hak_slab *slab = hak_hot_pop(bin);
        if (slab)
            return slab;
    }
    return NULL;
}

/* The most recent one stays in any case. */
struct hak_slab *hak_hot_push(struct hak_slab *slab)
{
    struct hot *h = &hot[slab->bin];
    struct hak_slab *before = NULL;
    if (atomic_load_explicit(&h->count, memory_order_relaxed) >= limit())
        before = take_all(h);
    hak_slab_stack_push(&h->stack, slab);
    atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
    return before;
}

struct hak_slab *hak_hot_take_all(unsigned *bin)
{
    struct hak_slab *slabs = NULL;
    for (; *bin < HAK_NBINS && !slabs; ++*bin)
        if (!hak_slab_stack_is_empty(&hot[*bin].stack))
            slabs = take_all(&hot[*bin]);
    return slabs;
}
