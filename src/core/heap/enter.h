/* SPDX-License-Identifier: MIT
 * Slow paths enter a heap, work with it as its only user, and leave it. A thread that has done enough has a heap of its
 * own (thread.h). A light thread enters the heap of the CPU on which it runs, under the heap's lock. If the kernel
 * moves it to another CPU, it continues with the heap that it entered: slabs belong to the heap, not to the thread. */
#ifndef HAK_ENTER_H
#define HAK_ENTER_H

#include "cpu_heaps.h"
#include "thread.h"

/* NULL without memory, or if the thread can have none: callers then use the orphan. */
HAK_INLINE struct hak_heap *hak_heap_enter(void)
{
    struct hak_heap *heap = hak_thread_heap();
    if (HAK_LIKELY(heap))
        hak_heap_begin_change(heap);
    else if (HAK_CPU_HEAPS)
        heap = hak_cpu_heap_enter();
    return heap;
}

HAK_INLINE void hak_heap_leave(struct hak_heap *heap)
{
    if (HAK_UNLIKELY(!heap))
        return;
    if (HAK_CPU_HEAPS && hak_heap_is_of_cpu(heap))
        hak_cpu_heap_leave(heap);
    else
        hak_heap_end_change(heap);
}

#endif
