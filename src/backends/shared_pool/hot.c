/* SPDX-License-Identifier: MIT
 * See hot.h. The counts are rough: they bound memory, and nothing depends on them otherwise. */
#include "hot.h"

#include "core/dispatch.h"
#include "core/slab_stack.h"

static struct hot {
    struct hak_slab_stack stack;
    _Atomic(int32_t) count;
} hot[HAK_NBINS];

static _Atomic(uint64_t) used_bins[(HAK_NBINS + 63) / 64]; /* bit i: hot[i] has held a slab */

/* The first of them from `bin` on, or HAK_NBINS. */
static unsigned next_used(unsigned bin)
{
    while (bin < HAK_NBINS) {
        uint64_t bits = atomic_load_explicit(&used_bins[bin / 64], memory_order_relaxed) >> bin % 64;
        if (bits)
            return bin + (unsigned)__builtin_ctzll(bits);
        bin = (bin / 64 + 1) * 64;
    }
    return HAK_NBINS;
}

static void mark_used(unsigned bin)
{
    _Atomic(uint64_t) *word = &used_bins[bin / 64];
    if (!(atomic_load_explicit(word, memory_order_relaxed) >> bin % 64 & 1))
        atomic_fetch_or_explicit(word, (uint64_t)1 << bin % 64, memory_order_relaxed);
}

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
    for (unsigned bin = 0; (bin = next_used(bin)) < HAK_NBINS; bin++) {
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
    mark_used(slab->bin);
    hak_slab_stack_push(&h->stack, slab);
    atomic_fetch_add_explicit(&h->count, 1, memory_order_relaxed);
    return before;
}

struct hak_slab *hak_hot_take_all(unsigned *bin)
{
    struct hak_slab *slabs = NULL;
    for (; !slabs && (*bin = next_used(*bin)) < HAK_NBINS; ++*bin)
        if (!hak_slab_stack_is_empty(&hot[*bin].stack))
            slabs = take_all(&hot[*bin]);
    return slabs;
}
