/* SPDX-License-Identifier: MIT
 * See hot.h. The counts are rough: they bound memory, and nothing depends on them otherwise. */
#include "hot.h"

#include "core/parts/parts.h"
#include "core/pages/slab_stack.h"

static struct hot {
    struct hak_slab_stack stack;
    _Atomic(int32_t) count;
} hot[HAK_NCLASSES];

static _Atomic(uint64_t) used_classes[(HAK_NCLASSES + 63) / 64]; /* bit i: hot[i] has held a slab */

/* The first of them from `bin` on, or HAK_NCLASSES. */
static unsigned next_used(unsigned cls)
{
    while (cls < HAK_NCLASSES) {
        uint64_t bits = HAK_LOAD_RELAXED(&used_classes[cls / 64]) >> cls % 64;
        if (bits)
            return cls + (unsigned)__builtin_ctzll(bits);
        cls = (cls / 64 + 1) * 64;
    }
    return HAK_NCLASSES;
}

static void mark_used(unsigned cls)
{
    _Atomic(uint64_t) *word = &used_classes[cls / 64];
    if (!(HAK_LOAD_RELAXED(word) >> cls % 64 & 1))
        HAK_OR_RELAXED(word, (uint64_t)1 << cls % 64);
}

static int32_t limit(void)
{
    return hak_parts.release->at_once ? 1 : (int32_t)hak_options.hot_slabs;
}

static struct hak_slab *take_all(struct hot *h)
{
    HAK_STORE_RELAXED(&h->count, 0);
    return hak_slab_stack_take_all(&h->stack);
}

struct hak_slab *hak_hot_pop(unsigned cls)
{
    struct hak_slab *slab = hak_slab_stack_pop(&hot[cls].stack);
    if (slab)
        HAK_SUB_RELAXED(&hot[cls].count, 1);
    return slab;
}

struct hak_slab *hak_hot_pop_similar(unsigned pages, bool header)
{
    for (unsigned cls = 0; (cls = next_used(cls)) < HAK_NCLASSES; cls++) {
        if (hak_slab_stack_is_empty(&hot[cls].stack) || hak_slab_pages[cls] != pages ||
            hak_parts_has_header(cls) != header)
            continue;
        struct hak_slab *slab = hak_hot_pop(cls);
        if (slab)
            return slab;
    }
    return NULL;
}

/* The most recent one stays in any case. */
struct hak_slab *hak_hot_push(struct hak_slab *slab)
{
    struct hot *h = &hot[slab->cls];
    struct hak_slab *before = NULL;
    if (HAK_LOAD_RELAXED(&h->count) >= limit())
        before = take_all(h);
    mark_used(slab->cls);
    hak_slab_stack_push(&h->stack, slab);
    HAK_ADD_RELAXED(&h->count, 1);
    return before;
}

struct hak_slab *hak_hot_take_all(unsigned *cls)
{
    struct hak_slab *slabs = NULL;
    for (; !slabs && (*cls = next_used(*cls)) < HAK_NCLASSES; ++*cls)
        if (!hak_slab_stack_is_empty(&hot[*cls].stack))
            slabs = take_all(&hot[*cls]);
    return slabs;
}
