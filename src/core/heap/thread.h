/* SPDX-License-Identifier: MIT
 * A thread's heap begins at the thread's first slow path, or when the thread has done enough while few threads have:
 * until then it is light, and uses the heaps of CPUs (enter.h). The destructor of a pthread key dissolves it. */
#ifndef HAK_THREAD_H
#define HAK_THREAD_H

#include "heap.h"

extern HAK_HIDDEN _Atomic(uint32_t) hak_flush_request;
/* The thread has no heap yet, or has not followed the last request. */
HAK_COLD struct hak_heap *hak_thread_heap_slow(void);

/* The calling thread's heap. NULL while it is light, once its destructor ran, or without memory. The caller has
 * initialised the library. */
HAK_INLINE struct hak_heap *hak_thread_heap(void)
{
    struct hak_heap *heap = hak_self.heap;
    return HAK_LIKELY(heap && heap->flush_done == HAK_LOAD_RELAXED(&hak_flush_request)) ? heap : hak_thread_heap_slow();
}

/* The thread gets a heap of its own, if it has none, so that its end is noticed. False: it cannot. */
bool hak_thread_will_end(void);
/* Between the two calls malloc finds no block in the thread's bins, so that each request reaches a slow entry, and the
 * thread's heap rests. The first one returns false without memory; they do not nest. */
bool hak_thread_suspend(void);
void hak_thread_resume(void);
/* At each maintenance step: the thread is busy. */
void hak_thread_step(uint64_t now_ms);
/* Before the library's start: makes the key whose destructor dissolves heaps, once. The caller holds no lock. */
void hak_thread_make_key(void);
/* Requests that every thread flushes its bins at its next slow path. */
void hak_thread_request_flush(void);

#endif
