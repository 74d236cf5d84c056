/* SPDX-License-Identifier: MIT
 * Shared slabs: a thread that has used a class little owns no slab of it. It adopts one that is PARTIAL, takes a few
 * blocks and publishes it again at once, so that blocks of many threads lie in one page, and a thread that then waits
 * holds little. The more threads there are, the more use still counts as little. No thread has the tag of such a slab:
 * its blocks are freed as remote ones, by number, so that what the thread keeps is bounded from the first free on. */
#ifndef HAK_SHARE_H
#define HAK_SHARE_H

#include "heap.h"

/* Smaller blocks are never shared: two threads would write to one cache line. */
#define HAK_SHARE_STRIDE_MIN HAK_CACHELINE
/* Larger blocks are much memory: a thread keeps none of them. If there are other threads, it shares slabs of them for a
 * few refills in any case. */
#define HAK_SHARE_STRIDE_LARGE 2048u
#define HAK_SHARE_USES_LARGE 4u
#define HAK_SHARE_USES_MANY 64u /* with nine heaps */

/* Number of refills of a class after which a thread owns slabs of it; below UINT16_MAX. */
extern _Atomic(uint32_t) hak_share_uses;
/* heaps.c reports each change of the number of heaps in use. */
void hak_share_set_heaps(uint32_t live);

/* Whether the thread shares slabs of the class. */
HAK_INLINE bool hak_share_is_on(const struct hak_bin *b, unsigned cls)
{
    if (HAK_LIKELY(b->slabs))
        return false;
    uint32_t uses = HAK_LOAD_RELAXED(&hak_share_uses);
    if (uses && hak_strides[cls] > HAK_SHARE_STRIDE_LARGE)
        uses = (uint32_t)hak_max(uses, HAK_SHARE_USES_LARGE);
    return b->uses < uses && hak_strides[cls] >= HAK_SHARE_STRIDE_MIN;
}

/* Among many threads, the first slab of a class too small to be shared: the thread may use a few blocks and wait, and
 * would keep all of the slab's old pages resident. */
HAK_INLINE bool hak_share_wants_new_pages(const struct hak_bin *b, unsigned cls)
{
    return !b->uses && hak_strides[cls] < HAK_SHARE_STRIDE_MIN &&
           HAK_LOAD_RELAXED(&hak_share_uses) >= HAK_SHARE_USES_MANY;
}

/* Counts a refill, or a flush of the remote cache. */
HAK_INLINE void hak_share_count_use(struct hak_bin *b)
{
    b->uses += b->uses < UINT16_MAX;
}

/* The number of free blocks of the class that a thread then keeps. */
uint32_t hak_share_capacity(unsigned cls);
/* A slab that the thread owns until hak_share_close; a new one only if may_grow. NULL without memory. */
struct hak_slab *hak_share_open(struct hak_heap *heap, unsigned cls, bool may_grow);
/* The most blocks to take from it when `want` are needed. */
uint32_t hak_share_batch(unsigned cls, uint32_t want);
void hak_share_close(struct hak_slab *slab);

#endif
