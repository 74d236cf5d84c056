/* SPDX-License-Identifier: MIT
 * The remote cache: blocks that this thread freed, of slabs that it does not own. They wait for the thread's next
 * refill of their class, in a list or an array, as in bins. When a class's cache is full, its blocks return to the
 * remote lists of their slabs. A thread calls these functions only for its own cache. */
#ifndef HAK_REMOTE_CACHE_H
#define HAK_REMOTE_CACHE_H

#include "cache_bins.h"
#include "core/pages/space.h"

/* Stores the first block of a class, and sets the capacity; or the block that fills the cache, and returns the blocks
 * to their slabs. */
HAK_NOINLINE void hak_remote_cache_check(struct hak_heap *heap, unsigned cls, void *block);

/* True: the block is stored. False: the cache was full, and has been checked. */
HAK_INLINE bool hak_remote_cache_put(struct hak_heap *heap, unsigned cls, void *block)
{
    struct hak_bin *b = &heap->bins[cls];
    if (HAK_UNLIKELY(hak_remote_cache_last(b) == block))
        hak_slab_fail_free(hak_space_slab_of_block(block), block);
    if (HAK_LIKELY(hak_remote_put(b, block)))
        return true;
    hak_remote_cache_check(heap, cls, block);
    return false;
}

/* A refill: moves all blocks of the class to the bin, which is empty. Returns their number; 0 if they are too few for a
 * refill. */
uint32_t hak_remote_cache_refill(struct hak_heap *heap, unsigned cls);
/* Returns the blocks of the class, or all blocks, to their slabs. */
void hak_remote_cache_flush_class(struct hak_heap *heap, unsigned cls);
void hak_remote_cache_flush(struct hak_heap *heap);

#endif
