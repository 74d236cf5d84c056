/* SPDX-License-Identifier: MIT
 * Slow paths enter a heap, work with it as its only user, and leave it. With the caches `list` and `array` the heap is
 * the thread's own. With `cpu` it is the heap of the CPU on which the thread runs, under the heap's lock; or the
 * thread's own if restartable sequences are off. A thread that the kernel moves to another CPU continues with the heap
 * that it entered: slabs belong to the heap, not to the thread. */
#ifndef HAK_ENTER_H
#define HAK_ENTER_H

#include "cpu_heaps.h"
#include "thread.h"

/* NULL in the same cases as hak_thread_heap. */
HAK_INLINE struct hak_heap *hak_heap_enter(void)
{
    if (hak_heaps_are_of_cpus())
        return hak_cpu_heap_enter();
    struct hak_heap *heap = hak_thread_heap();
    if (HAK_LIKELY(heap))
        hak_heap_begin_change(heap);
    return heap;
}

HAK_INLINE void hak_heap_leave(struct hak_heap *heap)
{
    if (HAK_UNLIKELY(!heap))
        return;
    if (hak_heaps_are_of_cpus())
        hak_cpu_heap_leave(heap);
    else
        hak_heap_end_change(heap);
}

#endif
