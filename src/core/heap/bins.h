/* SPDX-License-Identifier: MIT
 * All bins of a heap at once: when it is flushed, scanned, retired and resumed, or dissolved. */
#ifndef HAK_BINS_H
#define HAK_BINS_H

#include "heap.h"

/* Empties all bins of the calling thread, and gives up its slabs without live blocks. */
void hak_bins_flush(struct hak_heap *heap);
/* Now and then, by the calling thread: of a class that needed no refill since the last look, half of the bin goes, what
 * is in the remote cache, and idle slabs; when the bin is empty, all slabs. One such class a call. */
void hak_bins_scan(uint64_t now_ms);
/* Moves the blocks of the calling thread's bins to its heap, where they wait for the next owner; and back. */
void hak_bins_retire(struct hak_heap *heap);
void hak_bins_resume(struct hak_heap *heap);
/* Gives up all blocks and slabs of a retired heap. */
void hak_bins_dissolve(struct hak_heap *heap);

/* Bytes usable in the blocks that wait in the calling thread's bins and remote cache, or in a retired heap. */
size_t hak_bins_free_bytes(void);
size_t hak_bins_retired_bytes(const struct hak_heap *heap);

#endif
