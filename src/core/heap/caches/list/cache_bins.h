/* SPDX-License-Identifier: MIT
 * The cache `list`: a bin is a list of free blocks, linked through their first words. It needs no memory of its own.
 * All zero means empty, disabled, or not yet initialised: one branch of malloc leads to the slow path for all three. */
#ifndef HAK_CACHE_BINS_H
#define HAK_CACHE_BINS_H

#include "core/heap/caches/contract.h"
#include "core/heap/caches/list/remote.h"
#include "core/pages/block_batch.h"
#include "core/pages/mark.h"

#define HAK_LIST_WHOLE 4u
#define HAK_LIST_WHOLE_STRIDE 1024u

HAK_INLINE void *hak_cache_pop(hak_cache_ref self, unsigned cls)
{
    void *p = self->bin[cls];
    if (HAK_LIKELY(p))
        self->bin[cls] = hak_next_load(p);
    return p;
}

HAK_INLINE void *hak_cache_try_pop(hak_cache_ref self, unsigned cls)
{
    void *p = self->bin[cls], *next;
    if (HAK_UNLIKELY(!p || !hak_mark_is_whole(p, cls) || !hak_next_try_load(p, &next)))
        return NULL;
    self->bin[cls] = next;
    return p;
}

/* Counts a free of p. True: it has no room, or is the first block, which was freed last. */
HAK_INLINE bool hak_list_spend(hak_cache_ref self, uint64_t cls, const void *first, const void *p)
{
#if HAK_CACHE_BY_SEGMENT
    bool due;
    __asm__("cmpq %[first], %[p]\n\t"
            "rorq $1, %%fs:%c[room](%[self], %[cls], 8)"
            : "=@ccbe"(due)
            : [first] "r"(first), [p] "r"(p), [self] "r"((uintptr_t)self), [cls] "r"(cls),
              [room] "i"(offsetof(struct hak_cache, room))
            : "memory");
    return due;
#else
    return hak_room_spend(&self->room[cls]) || first == p;
#endif
}

HAK_INLINE bool hak_cache_push(hak_cache_ref self, uint64_t cls, void *p)
{
    void *first = self->bin[cls];
    if (HAK_UNLIKELY(hak_list_spend(self, cls, first, p)))
        return false;
    hak_next_store(p, first);
    self->bin[cls] = p;
    return true;
}

/* The same on the slow path, without counting. */
HAK_INLINE void hak_list_put(unsigned cls, void *p)
{
    hak_next_store(p, hak_self.bin[cls]);
    hak_self.bin[cls] = p;
}

/* Sets the frees until the bin is checked, and those of them until the next tick. Frees count as work in advance. */
HAK_INLINE void hak_list_set_room(struct hak_heap *heap, unsigned cls, uint32_t frees, uint32_t tick)
{
    uint32_t now = (uint32_t)hak_min(frees, tick);
    heap->bins[cls].own.later = (uint16_t)(frees - now);
    hak_self.room[cls] = hak_room(now);
    hak_work_add(now);
}

/* Called when the bin's room is used up: counts work. False if the bin is due for a check. Ticks are frequent, so they
 * take few instructions. */
HAK_INLINE bool hak_cache_tick(struct hak_heap *heap, unsigned cls, void *p)
{
    struct hak_bin *b = &heap->bins[cls];
    if (!b->own.later)
        return false;
    hak_list_put(cls, p);
    hak_list_set_room(heap, cls, b->own.later, hak_bin_tick_now(heap));
    return true;
}

HAK_INLINE void *hak_cache_first(unsigned cls)
{
    return hak_self.bin[cls];
}

/* Taking a part of a list requires a walk, which misses the cache at each block; so a list of small blocks that is not
 * much longer than the batch is taken whole. */
HAK_INLINE uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want,
                                   bool exactly)
{
    (void)heap;
    hak_block_batches_open(slab); /* without memory for a bitmap the list serves */
    bool whole = !exactly && want > 1 && slab->free && slab->free_count <= want * HAK_LIST_WHOLE &&
                 slab->stride <= HAK_LIST_WHOLE_STRIDE;
    struct hak_chain chain = whole ? hak_slab_take_list(slab) : hak_slab_take(slab, want);
    void *last = chain.head, *next;
    if (HAK_UNLIKELY(hak_self.bin[cls])) { /* the bin is filled ahead of use */
        while ((next = hak_next_load(last)))
            last = next;
        hak_next_store(last, hak_self.bin[cls]);
    }
    hak_self.bin[cls] = chain.head;
    return chain.count;
}

HAK_INLINE bool hak_cache_can_hold(const struct hak_heap *heap, unsigned cls)
{
    (void)heap, (void)cls;
    return true;
}

HAK_INLINE void *hak_cache_pop_again(struct hak_heap *heap, unsigned cls)
{
    (void)heap;
    return hak_cache_pop(hak_cache_here(), cls);
}

HAK_INLINE void *hak_cache_taken(struct hak_heap *heap, unsigned cls)
{
    return hak_cache_pop_again(heap, cls);
}

#endif
