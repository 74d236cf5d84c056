/* SPDX-License-Identifier: MIT
 * A thread's heap begins at the thread's first slow path. The destructor of a pthread key retires it. */
#ifndef HAK_THREAD_H
#define HAK_THREAD_H

#include "heap.h"

extern HAK_HIDDEN _Atomic(uint32_t) hak_flush_request;
/* The thread has no heap yet, or has not followed the last request. */
HAK_COLD struct hak_heap *hak_thread_heap_slow(void);

/* The calling thread's heap, which begins on first use. NULL once the thread's destructor ran, without memory, or if
 * heaps belong to CPUs: callers then use the orphan. The caller has initialised the library. */
HAK_INLINE struct hak_heap *hak_thread_heap(void)
{
    struct hak_heap *heap = hak_self.heap;
    return HAK_LIKELY(heap && heap->flush_done == HAK_LOAD_RELAXED(&hak_flush_request)) ? heap : hak_thread_heap_slow();
}

/* Before the library's start: makes the key whose destructor retires heaps, once. The caller holds no lock. */
void hak_thread_make_key(void);
/* Asks every thread to flush its bins at its next slow path. */
void hak_thread_request_flush(void);

#endif
