/* SPDX-License-Identifier: MIT
 * The refill of bins, one for all frontends and caches. A thread calls these for its own bins alone. */
#ifndef HAK_BIN_H
#define HAK_BIN_H

#include "caches/chosen.h"

/* Whether a refill may take a new slab beyond the memory budget. Within it, NULL may mean: make room first. */
enum hak_refill_mode { HAK_REFILL_WITHIN_BUDGET, HAK_REFILL_BEYOND_BUDGET };
/* Whether a new slab of the class is. */
bool hak_bin_is_within_budget(unsigned cls);

/* One block for the caller; more of them go to the bin. NULL without memory. */
void *hak_bin_refill(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode);
/* Instead of a refill, a block of one of the next three classes that has free ones when this one has none;
 * NULL otherwise. Its stride may be a multiple of nothing: not for aligned requests. */
void *hak_bin_fall_back(struct hak_heap *heap, unsigned cls);
/* One block from a shared slab, for the orphan: it has no bins. */
void *hak_bin_take_one(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode);
/* Fills a bin up to at least `blocks` blocks, for prewarming. */
void hak_bin_prewarm(struct hak_heap *heap, unsigned cls, uint32_t blocks);

#endif
