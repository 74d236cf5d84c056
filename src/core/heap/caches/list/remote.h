/* SPDX-License-Identifier: MIT
 * The remote cache of a class as a list. remote_cache.c decides when. */
#ifndef HAK_CACHES_LIST_REMOTE_H
#define HAK_CACHES_LIST_REMOTE_H

#include "core/heap/caches/contract.h"
#include "core/heap/drain.h"

/* The block put last; NULL if there is none. */
HAK_INLINE void *hak_remote_cache_last(const struct hak_bin *b)
{
    return b->remote_cache;
}

/* True: the block is stored. False: the list may be full; the caller runs hak_remote_put_last. */
HAK_INLINE bool hak_remote_put(struct hak_bin *b, void *block)
{
    bool room = b->remote_count < b->remote_capacity;
    if (HAK_LIKELY(room)) {
        hak_next_store(block, b->remote_cache);
        b->remote_cache = block;
        b->remote_count++;
    }
    return room;
}

/* Cuts the list behind its first `keep` blocks; returns the rest. */
HAK_INLINE void *cut_remote_list(struct hak_bin *b, uint32_t keep)
{
    void *last = b->remote_cache, *rest;
    for (uint32_t i = 1; i < keep; i++)
        last = hak_next_load(last);
    rest = keep ? hak_next_load(last) : last;
    if (keep)
        hak_next_store(last, NULL);
    else
        b->remote_cache = NULL;
    return rest;
}

static inline void hak_remote_flush_to(struct hak_heap *heap, struct hak_bin *b, uint32_t keep)
{
    void *rest = cut_remote_list(b, keep);
    b->remote_count = (uint16_t)keep;
    hak_drain(heap, rest);
}

HAK_INLINE void hak_remote_drop_slots(struct hak_heap *heap, struct hak_bin *b)
{
    (void)heap, (void)b;
}

HAK_INLINE bool hak_remote_give(struct hak_heap *heap, unsigned cls, uint32_t count)
{
    void *blocks = heap->bins[cls].remote_cache;
    heap->bins[cls].remote_cache = NULL;
    heap->bins[cls].remote_count = 0;
    return hak_cache_give(heap, cls, blocks, count);
}

HAK_INLINE void hak_remote_put_last(struct hak_heap *heap, struct hak_bin *b, void *block, uint32_t capacity)
{
    (void)heap;
    b->remote_capacity = (uint16_t)(capacity - 1);
    hak_next_store(block, b->remote_cache);
    b->remote_cache = block;
    b->remote_count++;
}

#endif
