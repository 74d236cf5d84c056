/* SPDX-License-Identifier: MIT
 * The refill of bins, which all frontends and caches share. A thread calls these functions only for its own bins. */
#ifndef HAK_REFILL_H
#define HAK_REFILL_H

#include "cache_bins.h"

/* Whether a refill may exceed the memory budget for a new slab. If not, NULL may mean that the caller must purge
 * first. */
enum hak_refill_mode { HAK_REFILL_WITHIN_BUDGET, HAK_REFILL_BEYOND_BUDGET };
/* Whether a new slab of the class fits into the budget. */
bool hak_bin_is_within_budget(unsigned cls);

/* Returns one block and puts more into the bin. NULL without memory. */
void *hak_bin_refill(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode);
/* Instead of a refill: if this class has no free block, returns one of the next classes; NULL if these have none, or
 * for strides below HAK_FALLBACK_MIN. Not for aligned requests: nothing is known of the block's alignment beyond 16. */
#define HAK_FALLBACK_MIN 4096u
void *hak_bin_fall_back(struct hak_heap *heap, unsigned cls);
/* One block from a shared slab, for the orphan, which has no bins. */
void *hak_bin_take_one(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode);
/* Fills a bin up to at least `blocks` blocks, for prewarming. */
void hak_bin_prewarm(struct hak_heap *heap, unsigned cls, uint32_t blocks);

#endif
