/* SPDX-License-Identifier: MIT
 * All bins of a thread at once: when it drains, parks and resumes, or is broken up. */
#ifndef HAK_BINS_H
#define HAK_BINS_H

#include "heap.h"

/* Empties all bins of the calling thread, and gives up its slabs without live blocks. */
void hak_bins_flush(struct hak_heap *heap);
/* Now and then, by the calling thread: of a class that needed no refill since the last look, half of the bin goes, what
 * is in the remote cache, and idle slabs; when the bin is empty, all slabs. One such class a call. */
void hak_bins_scan(uint64_t now_ms);
/* From the calling thread's bins to its descriptor, where they wait for the next thread, and back. */
void hak_bins_retire(struct hak_heap *heap);
void hak_bins_resume(struct hak_heap *heap);
/* Ends a parked thread's ownership of everything. */
void hak_bins_dissolve(struct hak_heap *heap);

/* Bytes usable in the blocks that wait in the calling thread's bins and remote cache, or in those of a parked one. */
size_t hak_bins_free_bytes(void);
size_t hak_bins_retired_bytes(const struct hak_heap *heap);

#endif
