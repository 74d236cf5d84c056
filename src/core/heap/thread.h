/* SPDX-License-Identifier: MIT
 * The life of threads. One begins at its first slow path and ends in the destructor of a pthread key. When it ends,
 * its descriptor is parked with the blocks and slabs it has, if they are few, and the next thread to start goes on
 * with them. After the purge delay, or when memory is needed elsewhere, a parked one is broken up: its slabs become
 * PARTIAL, FULL or EMPTY, so that nothing refers to the thread any more, and the descriptor is recycled. */
#ifndef HAK_THREAD_H
#define HAK_THREAD_H

#include "core/base/lock.h"
#include "descriptor.h"

/* The calling thread's descriptor, made on first use. NULL once the thread's destructor ran, without memory,
 * or where descriptors are processors': callers then use the orphan. The library is initialised. */
struct hak_thread *hak_thread_get(void);
/* A descriptor for a processor, and what is done with it: the frontends' own in it begins and ends; it was used by
 * nobody. */
struct hak_thread *hak_thread_new(void);
void hak_thread_start_parts(struct hak_thread *t);
void hak_thread_end_parts(struct hak_thread *t);
void hak_thread_recycle(struct hak_thread *t);
/* Shared by all threads that have no descriptor; between the two calls the caller has it alone. Nobody's
 * tag is its tag, so blocks of its slabs always come back by their remote lists. */
struct hak_thread *hak_thread_orphan_acquire(void);
void hak_thread_orphan_release(void);

/* At the library's start, so before any thread begins: makes the key whose destructor ends them. */
void hak_thread_make_key(void);
/* In a forked child: forgets its parent's other threads; what they owned stays pinned, and is counted. */
void hak_thread_fork_child(void);
/* Asks every thread to empty its bins at its next slow path. */
void hak_thread_ask_drain(void);
/* Breaks up the threads that were parked then or before. The caller holds no lock but the orphan's. */
void hak_thread_break_up(uint64_t since_ms);

/* Sums the counters of all threads, dead ones included. */
struct hak_thread_totals {
    uint64_t threads, started, parked, resumed, pinned_slabs, active_slabs;
    struct hak_counters counters;
};
void hak_thread_totals(struct hak_thread_totals *totals);

/* Bytes usable in blocks that wait in bins of the calling thread and of parked ones. */
size_t hak_thread_free_bytes(void);

extern struct hak_lock hak_thread_lock, hak_orphan_lock;

#endif
