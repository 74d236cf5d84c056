/* SPDX-License-Identifier: MIT
 * See hot.h. The counts are rough: they bound memory, and nothing depends on them otherwise. */
#include "hot.h"

#include "core/plugin.h"

static struct hot {
    struct hak_slab_stack stack;
    _Atomic(int32_t) count;
} hot[HAK_NCLASSES];

#define PAGES_MAX 192 /* 12 MiB; a class that finds more keeps only the most recent slab */

static _Atomic(int32_t) hot_pages; /* of all classes, as their counts say */

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
    bool many = HAK_LOAD_RELAXED(&hot_pages) > PAGES_MAX;
    return many || hak_parts.release->at_once ? 1 : (int32_t)hak_options.hot_slabs;
}

static void count(unsigned cls, int32_t slabs)
{
    HAK_ADD_RELAXED(&hot[cls].count, slabs);
    HAK_ADD_RELAXED(&hot_pages, slabs * (int32_t)hak_slab_pages[cls]);
}

struct hak_slab *hak_hot_take(unsigned cls)
{
    count(cls, -HAK_LOAD_RELAXED(&hot[cls].count));
    return hak_slab_stack_take_all(&hot[cls].stack);
}

struct hak_slab *hak_hot_pop(unsigned cls)
{
    struct hak_slab *slab = hak_slab_stack_pop(&hot[cls].stack);
    if (slab)
        count(cls, -1);
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

bool hak_hot_push(struct hak_slab *slab)
{
    unsigned cls = slab->cls; /* once it is pushed, the slab may become one of another class */
    if (HAK_LOAD_RELAXED(&hot[cls].count) >= limit())
        return false;
    mark_used(cls);
    hak_slab_stack_push(&hot[cls].stack, slab);
    count(cls, 1);
    return true;
}

struct hak_slab *hak_hot_take_all(unsigned *cls)
{
    struct hak_slab *slabs = NULL;
    for (; !slabs && (*cls = next_used(*cls)) < HAK_NCLASSES; ++*cls)
        if (!hak_slab_stack_is_empty(&hot[*cls].stack))
            slabs = hak_hot_take(*cls);
    return slabs;
}
