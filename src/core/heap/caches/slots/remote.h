/* SPDX-License-Identifier: MIT
 * The remote cache of a class as an array, which doubles as it is used. remote_cache.c decides when. */
#ifndef HAK_CACHES_SLOTS_REMOTE_H
#define HAK_CACHES_SLOTS_REMOTE_H

#include "core/base/text.h"
#include "core/heap/caches/contract.h"
#include "core/heap/drain.h"
#include "slots.h"

/* The block put last; NULL if there is none. */
HAK_INLINE void *hak_remote_cache_last(const struct hak_bin *b)
{
    return b->remote_count ? b->remote_cache[b->remote_count - 1] : NULL;
}

/* True: the block is stored. False: the array may be full; the caller runs hak_remote_put_last. Nothing here reads the
 * block; but a drain will write to it, or the program, which gets it from a refill. */
HAK_INLINE bool hak_remote_put(struct hak_bin *b, void *block)
{
    __builtin_prefetch(block, 1);
    bool room = b->remote_count < b->remote_capacity;
    if (HAK_LIKELY(room)) {
        b->remote_cache[b->remote_count] = block;
        HAK_KEEP_ORDER(); /* kept on the fast path too, since a fork may come in between */
        b->remote_count++;
    }
    return room;
}

/* Drains all blocks except the `keep` freed last. */
static inline void hak_remote_flush_to(struct hak_heap *heap, struct hak_bin *b, uint32_t keep)
{
    uint32_t rest = b->remote_count - keep;
    b->remote_count = (uint16_t)keep;
    hak_drain_array(heap, b->remote_cache, rest);
    hak_move(b->remote_cache, b->remote_cache + rest, keep * sizeof *b->remote_cache);
}

/* Gives the slots to the other classes. */
HAK_INLINE void hak_remote_drop_slots(struct hak_heap *heap, struct hak_bin *b)
{
    hak_slots_put(heap, b->remote_cache, b->own.remote_lg);
    b->remote_cache = NULL;
    b->remote_capacity = b->own.remote_lg = 0;
}

HAK_INLINE bool hak_remote_give(struct hak_heap *heap, unsigned cls, uint32_t count)
{
    heap->bins[cls].remote_count = 0;
    return hak_cache_give(heap, cls, heap->bins[cls].remote_cache, count);
}

/* Makes slots for one more block, doubling the array; returns how many there are. If the capacity is less than before,
 * the array does not grow. */
static inline uint32_t grow_remote_slots(struct hak_heap *heap, struct hak_bin *b, uint32_t capacity)
{
    uint32_t most = b->own.remote_lg ? 1u << b->own.remote_lg : 0;
    unsigned lg = hak_slots_lg((uint32_t)hak_min(capacity, 2 * most));
    void **slots = b->remote_count < most || lg <= b->own.remote_lg ? NULL : hak_slots_get(heap, lg);
    if (!slots)
        return most;
    if (most) {
        hak_move(slots, b->remote_cache, most * sizeof *slots);
        hak_slots_put(heap, b->remote_cache, b->own.remote_lg);
    }
    b->remote_cache = slots;
    b->own.remote_lg = (uint8_t)lg;
    return 1u << lg;
}

HAK_INLINE void hak_remote_put_last(struct hak_heap *heap, struct hak_bin *b, void *block, uint32_t capacity)
{
    uint32_t most = grow_remote_slots(heap, b, capacity);
    b->remote_capacity = (uint16_t)hak_min(capacity - 1, most);
    if (b->remote_count < most)
        b->remote_cache[b->remote_count++] = block;
    else
        hak_drain_array(heap, &block, 1);
}

#endif
