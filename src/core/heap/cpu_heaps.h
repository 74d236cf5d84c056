/* SPDX-License-Identifier: MIT
 * The heaps of CPUs, with the cache `cpu`: when one begins, is idle and is locked. Callers check hak_heaps_are_of_cpus
 * first; in builds where that is constant, these functions do not exist. */
#ifndef HAK_CPU_HEAPS_H
#define HAK_CPU_HEAPS_H

#include "heap.h"

/* At the library's start: from here on heaps belong to CPUs, if restartable sequences are usable. */
void hak_cpu_heaps_start(void);
/* The heap of the CPU that the calling thread runs on, which begins on first use, locked for the caller. NULL without
 * memory, or if the thread is not registered with rseq: callers then use the orphan. */
struct hak_heap *hak_cpu_heap_enter(void);
void hak_cpu_heap_leave(struct hak_heap *heap);
/* hak_bins_scan_heap, for the CPU that the calling thread runs on. The caller has entered no heap. */
void hak_cpu_heap_scan(uint64_t now_ms);
/* Dissolves the heaps of CPUs on which no scan has run since then: they give up all blocks and slabs. The caller has
 * entered no heap. */
void hak_cpu_heaps_dissolve(uint64_t since_ms);
/* For fork: locks all of them; a heap that begins in the meantime is locked, too. */
void hak_cpu_heaps_lock(void);
void hak_cpu_heaps_unlock(void);
void hak_cpu_heaps_lose_others(void); /* as hak_lock_lose_others */

#endif
