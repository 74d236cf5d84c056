/* SPDX-License-Identifier: MIT
 * How the blocks and slabs of a heap go back: flush, trim, decay scan, dissolve. */
#ifndef HAK_DECAY_H
#define HAK_DECAY_H

#include "heap.h"

/* Empties all bins of the calling thread, and releases its slabs without allocated blocks. */
void hak_bins_flush(struct hak_heap *heap);
/* Purges whole free pages inside the slabs that the calling thread owns. */
void hak_bins_trim(void);
/* The decay scan, which each thread runs at intervals, on its heap or on that of its CPU, which it has entered. For a
 * class that needed no refill since its last scan, it drains half of the bin and the remote cache, and releases idle
 * slabs; if the bin is then empty, it gives up all slabs. It shrinks at most one class per call. */
void hak_bins_scan_heap(struct hak_heap *heap, uint64_t now_ms);
void hak_bins_scan(uint64_t now_ms); /* the calling thread's own heap, if it has one */
/* The heap's slabs lose their owner, so that other heaps can adopt those with free blocks. */
void hak_bins_give_up_slabs(struct hak_heap *heap);
/* Gives up all blocks and slabs of a heap whose thread has ended, or of a CPU whose arrays are closed. */
void hak_bins_dissolve(struct hak_heap *heap);

/* Usable bytes of the blocks in bins and remote cache of the calling thread's heap, or of a CPU's. */
size_t hak_bins_free_bytes(const struct hak_heap *heap);

#endif
