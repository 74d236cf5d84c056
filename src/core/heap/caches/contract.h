/* SPDX-License-Identifier: MIT
 * What a cache does: it holds a thread's free blocks, one bin for each class, in front of the slabs. Each folder
 * beside this file is one; -Dcache chooses at build time, and chosen.h includes its header. A header defines these
 * inline, for the fast path:
 *   void *hak_cache_pop(hak_cache_ref self, unsigned cls)             a block; NULL from an empty bin
 *   void *hak_cache_try_pop(hak_cache_ref self, unsigned cls)         the same; NULL, too, where pop may call something
 *   bool hak_cache_push(hak_cache_ref self, uint64_t cls, void *p)    true: p is stored; false: hak_cache_tick
 *       is due, or a check, or p is hak_cache_first
 *   bool hak_cache_tick(struct hak_heap *heap, unsigned cls, void *p) true: p is stored; false: a check is due
 *   uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly)
 *       blocks of the slab to the bin, in one refill; how many; of own slabs a few more may come. 0 without memory
 *   void *hak_cache_taken(struct hak_heap *heap, unsigned cls)         one of those; NULL where there are none
 *   void *hak_cache_pop_again(unsigned cls)                           on the slow path: a block; NULL from an empty bin
 *   bool hak_cache_can_hold(const struct hak_bin *b)                false: for want of memory the bin holds no block
 *   void *hak_cache_first(unsigned cls)     the block that malloc will take; NULL from an empty bin
 * and the rest here. `heap` is the heap that the calling thread has entered (heap/enter.h), and the bin its own.
 * Only free() counts, and only down: after so many frees of a class its bin is checked, which bounds it. */
#ifndef HAK_CACHES_CONTRACT_H
#define HAK_CACHES_CONTRACT_H

#include "core/base/work.h"
#include "core/heap/heap.h"

/* Frees of a class between two ticks; each check of a bin is one, too. */
#define HAK_BIN_TICK (HAK_CACHE_CPU ? 128u : HAK_ROOM_MOST)
#define HAK_BIN_SHORT_TICK 16u /* the same while idle memory waits to be purged */

/* So many frees at most until the next tick. */
HAK_INLINE uint32_t hak_bin_tick(void)
{
    return HAK_UNLIKELY(HAK_LOAD_RELAXED(&hak_purge_waits)) ? HAK_BIN_SHORT_TICK : HAK_BIN_TICK;
}

/* The thread uses the class for the first time. */
void hak_cache_start(struct hak_heap *heap, unsigned cls);
/* Others' blocks go to the bin, which is empty, the one freed last to be taken first. False: there is no room, all are
 * drained. */
bool hak_cache_give(struct hak_heap *heap, unsigned cls, hak_remote_blocks blocks, uint32_t n);
/* p was freed, and the bin's room is used up: drains what it has beyond its capacity. */
void hak_cache_check(struct hak_heap *heap, unsigned cls, void *p);
/* The same in a thread that has no heap, or has ended: it keeps nothing in its bins. */
void hak_cache_leave(unsigned cls, void *p);
/* Empties the bin, or drains the half of it that was freed longest ago. */
void hak_cache_drain(struct hak_heap *heap, unsigned cls);
void hak_cache_halve(struct hak_heap *heap, unsigned cls);

/* Moves all bins of the calling thread to its heap, and back; drains those of a retired heap. */
void hak_cache_retire(struct hak_heap *heap);
void hak_cache_resume(struct hak_heap *heap);
void hak_cache_drain_retired(struct hak_heap *heap, unsigned cls);
size_t hak_cache_retired_length(const struct hak_heap *heap, unsigned cls);

size_t hak_cache_length(unsigned cls);
void hak_cache_each(unsigned cls, void (*visit)(unsigned cls, void *block));

#endif
