/* SPDX-License-Identifier: MIT
 * The one refill and the one drain between bins and slabs, for every frontend. */
#ifndef HAK_BIN_H
#define HAK_BIN_H

#include "thread.h"

/* One block for the caller; more of them go to the bin when `t` is the calling thread. NULL without memory. */
void *hak_bin_refill(struct hak_thread *t, unsigned bin);
/* Instead of a refill, a block of one of the next three classes that has free ones when this one has none;
 * NULL otherwise. Its stride may be a multiple of nothing: not for aligned requests. */
void *hak_bin_borrow(struct hak_thread *t, unsigned bin);
/* One block straight from a slab, for the orphan: it has no bins. */
void *hak_bin_take_one(struct hak_thread *t, unsigned bin);
/* Gives a chain of free blocks, of any slabs, back to their slabs. t: the caller's, or NULL without one. */
void hak_bin_drain(struct hak_thread *t, void *blocks);
/* The list of a bin's foreign blocks has just got its first block, or its last one. */
HAK_NOINLINE void hak_bin_foreign_turn(struct hak_thread *t, unsigned bin);

/* A block of another thread's slab, freed by the calling thread, waits by class for its next refill of the
 * class; what exceeds the limit goes home. */
HAK_INLINE void hak_bin_foreign_free(struct hak_thread *t, unsigned bin, void *block)
{
    struct hak_bin *b = &t->bins[bin];
    hak_next_store(block, b->foreign);
    b->foreign = block;
    if (HAK_UNLIKELY(b->foreign_room-- == 0))
        hak_bin_foreign_turn(t, bin);
}

/* Gives all of those back. */
void hak_bin_flush_foreign(struct hak_thread *t);
/* Empties all bins of the calling thread, and gives up its slabs without live blocks. */
void hak_bin_drain_all(struct hak_thread *t);
/* From the calling thread's bins to its descriptor, where they wait for the next thread, and back. */
void hak_bin_park_all(struct hak_thread *t);
void hak_bin_resume_all(struct hak_thread *t);
/* Ends a parked thread's ownership of everything. */
void hak_bin_abandon_all(struct hak_thread *t);
/* Fills a bin of the calling thread up to at least `blocks` blocks, for prewarming. */
void hak_bin_prewarm(struct hak_thread *t, unsigned bin, uint32_t blocks);
/* How many blocks a bin keeps when it is looked at. */
uint32_t hak_bin_limit(unsigned bin);
/* A PARTIAL slab whose blocks are all back and which stands on no list: to EMPTY, and to its frontend. */
void hak_slab_reap(struct hak_slab *slab);

#endif
