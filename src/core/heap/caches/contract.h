/* SPDX-License-Identifier: MIT
 * The interface of a cache, which holds a thread's free blocks, one bin for each class, in front of the slabs. Each
 * folder beside this file is a cache; -Dcache puts one on the include path. Its
 * cache_layout.h says what it keeps in a bin and in a heap; its cache_bins.h defines these inline, for the fast path:
 *   void *hak_cache_pop(hak_cache_ref self, unsigned cls)
 *     Takes a block; NULL from an empty bin.
 *   void *hak_cache_try_pop(hak_cache_ref self, unsigned cls)
 *     Does the same, and returns NULL if pop would call a function.
 *   bool hak_cache_push(hak_cache_ref self, uint64_t cls, void *p)
 *     Stores p. False: it did not, since a tick or a check is due, or p is hak_cache_first.
 *   bool hak_cache_tick(struct hak_heap *heap, unsigned cls, void *p)
 *     Stores p. False: it did not, since a check is due.
 *   uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly)
 *     Moves blocks of the slab to the bin, of own slabs possibly a few more; returns how many, 0 without memory.
 *   void *hak_cache_taken(struct hak_heap *heap, unsigned cls)
 *     Takes one of those; NULL if there are none.
 *   void *hak_cache_pop_again(struct hak_heap *heap, unsigned cls)
 *     Takes a block on the slow path; NULL from an empty bin.
 *   bool hak_cache_can_hold(const struct hak_heap *heap, unsigned cls)
 *     False: the array has no memory for slots, so the bin holds no block.
 *   void *hak_cache_first(unsigned cls)
 *     Returns the block that malloc will take; NULL from an empty bin.
 * and the functions declared below. `heap` is the heap that the calling thread has entered (heap/enter.h), and the bin
 * is that heap's. Only free() counts, and only down: after a number of frees of a class, its bin is checked, which
 * bounds it. */
#ifndef HAK_CACHES_CONTRACT_H
#define HAK_CACHES_CONTRACT_H

#include "core/base/work.h"
#include "core/heap/heap.h"

/* Frees of a class between two ticks. Each check of a bin is a tick, too. */
#define HAK_BIN_TICK HAK_ROOM_MOST
#define HAK_BIN_SHORT_TICK 16u /* frees between ticks while idle memory waits to be purged */

HAK_INLINE uint32_t hak_bin_random(struct hak_heap *heap)
{
    return heap->random = heap->random * 1664525u + 1013904223u;
}

/* The frees until the next tick: HAK_BIN_TICK less up to a half, at random. Otherwise classes that the program uses in
 * turn would tick one right after the other, and none in thousands of calls before. */
HAK_INLINE uint32_t hak_bin_tick(struct hak_heap *heap)
{
    return HAK_BIN_TICK - (hak_bin_random(heap) >> 27);
}

/* The same where idle memory may wait. */
HAK_INLINE uint32_t hak_bin_tick_now(struct hak_heap *heap)
{
    return HAK_UNLIKELY(HAK_LOAD_RELAXED(&hak_purge_waits)) ? HAK_BIN_SHORT_TICK : hak_bin_tick(heap);
}

/* A part of `frees` at random: so classes whose first calls come in turn do not tick together either. */
HAK_INLINE uint32_t hak_bin_part(struct hak_heap *heap, uint32_t frees)
{
    return (uint32_t)((uint64_t)frees * hak_bin_random(heap) >> 32);
}

/* The thread uses the class for the first time. */
void hak_cache_start(struct hak_heap *heap, unsigned cls);
/* Moves blocks of other heaps to the bin, which is empty; the block freed last will be taken first. False: the bin has
 * no room, and the blocks were drained. */
bool hak_cache_give(struct hak_heap *heap, unsigned cls, hak_remote_blocks blocks, uint32_t n);
/* p was freed, and the bin's room is used up: drains the blocks beyond its capacity. */
void hak_cache_check(struct hak_heap *heap, unsigned cls, void *p);
/* The same in a thread that has no heap, or has ended: its bins stay empty. */
void hak_cache_leave(unsigned cls, void *p);
/* Empties the bin; drains the half of it that was freed longest ago. */
void hak_cache_drain(struct hak_heap *heap, unsigned cls);
void hak_cache_halve(struct hak_heap *heap, unsigned cls);

/* The thread gets the heap. */
void hak_cache_begin(struct hak_heap *heap);
/* Drains the bin for good, of the heap's thread, which has ended, or of a CPU that is closed. */
void hak_cache_end(struct hak_heap *heap, unsigned cls);

/* Blocks in the bin of the calling thread's heap, or of a CPU's. */
size_t hak_cache_length(const struct hak_heap *heap, unsigned cls);

void hak_cache_each(unsigned cls, void (*visit)(unsigned cls, void *block));

#endif
