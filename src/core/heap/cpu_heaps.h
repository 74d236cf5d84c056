/* SPDX-License-Identifier: MIT
 * The heaps of CPUs, which threads use that have none of their own: when one begins, is idle and is locked. Callers
 * check HAK_CPU_HEAPS first. */
#ifndef HAK_CPU_HEAPS_H
#define HAK_CPU_HEAPS_H

#include "heap.h"

/* The heap of the CPU that the calling thread runs on, which begins on first use, locked for the caller. NULL without
 * memory, or if sequences are on but do not know the thread: callers then use the orphan. */
struct hak_heap *hak_cpu_heap_enter(void);

void hak_cpu_heap_leave(struct hak_heap *heap);
/* hak_bins_scan_heap, for the CPU that the calling thread runs on. The caller has entered no heap. */
void hak_cpu_heap_scan(uint64_t now_ms);
/* A thread that used the heap of this CPU gets one of its own, which can adopt these slabs. */
void hak_cpu_heap_give_up_slabs(void);
/* Dissolves the heaps of CPUs on which no scan has run since then: they give up all blocks and slabs. The caller has
 * entered no heap. */
void hak_cpu_heaps_dissolve(uint64_t since_ms);
/* Usable bytes in free blocks of their bins. */
size_t hak_cpu_heaps_free_bytes(void);
/* For fork: locks all of them; a heap that begins in the meantime is locked, too. */
void hak_cpu_heaps_lock(void);
void hak_cpu_heaps_unlock(void);
void hak_cpu_heaps_lose_others(void); /* as hak_lock_lose_others */

#endif
