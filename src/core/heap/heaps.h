/* SPDX-License-Identifier: MIT
 * All heaps of the process. A heap is in use, owned by a thread or a CPU; or recycled: it has neither blocks nor slabs.
 * When its thread ends, it is dissolved: its slabs become PARTIAL, FULL or EMPTY, and it is recycled. The orphan serves
 * threads that find no heap. */
#ifndef HAK_HEAPS_H
#define HAK_HEAPS_H

#include "core/base/lock.h"
#include "heap.h"

/* A heap for a thread, or for a CPU with these arrays: a recycled one, else a new one. NULL without memory. */
struct hak_heap *hak_heap_new(struct hak_arrays *arrays);
/* Calls the hooks of the frontends for a heap whose owner begins or ends. */
void hak_heap_start_parts(struct hak_heap *heap);
void hak_heap_end_parts(struct hak_heap *heap);
/* Its thread has ended, and heap->cache has what its bins held. */
void hak_heap_dissolve(struct hak_heap *heap);
/* Recycles a heap without blocks and slabs. */
void hak_heap_recycle(struct hak_heap *heap);
#define HAK_DISSOLVED_AT_ONCE 4u /* heaps: some 100 us */
/* Dissolves up to `most` heaps that a fork left at `since_ms` or before. True: there may be more. The caller holds no
 * lock but the orphan's. */
bool hak_heaps_dissolve(uint64_t since_ms, unsigned most);

/* Between the two calls the caller has exclusive use of the orphan. No thread has the orphan's tag, so blocks of its
 * slabs are always freed through the remote lists. */
struct hak_heap *hak_orphan_acquire(void);
void hak_orphan_release(void);

/* In a forked child, by the thread that holds all locks: the heaps of the parent's other threads will be dissolved as
 * memory is needed or time goes by, unless their threads were in slow paths. Slabs of these stay pinned, and are
 * counted. */
void hak_heaps_fork_child(void);

/* Sums the counters of all heaps, recycled ones included. */
struct hak_heaps_totals {
    uint64_t used, cpus, started, pinned_slabs, active_slabs; /* used: those of threads */
    struct hak_counters counters;
};
void hak_heaps_totals(struct hak_heaps_totals *totals);

/* How many heaps threads and CPUs own. */
uint32_t hak_heaps_count(void);

extern struct hak_lock hak_heaps_lock, hak_orphan_lock;

#endif
