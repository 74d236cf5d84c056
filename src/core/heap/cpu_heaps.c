/* SPDX-License-Identifier: MIT
 * See cpu_heaps.h. A CPU gets its heap when a thread first runs a slow path on it, and keeps it. */
#include "cpu_heaps.h"

#include "cache_bins.h"
#include "core/base/clock.h"
#include "core/os/cgroup.h"
#include "decay.h"
#include "drain.h"
#include "heaps.h"

/* Stored with release when complete; loaded with acquire by a thread that enters. */
static _Atomic(struct hak_heap *) heaps[HAK_CPUS];
static _Atomic(unsigned) count;           /* CPU ids, or heaps that threads choose by number; 0: none yet */
static HAK_LOCK(making, HAK_RANK_MAKING); /* held to write `heaps` */

#define NUMBERED 16u /* most heaps without sequences; each lock then has few threads that are busy */

/* The first thread without a heap calls this: most programs have none. */
static void start(void)
{
    hak_cpus(); /* reads files, which a sandbox may forbid later */
    hak_lock_acquire(&making);
    if (!HAK_LOAD_RELAXED(&count)) {
        unsigned cpus = hak_arrays_start();
        HAK_STORE_RELEASE(&count, cpus ? cpus : NUMBERED);
    }
    hak_lock_release(&making);
}

/* Negative: sequences are on, but do not know the thread. */
static int current(void)
{
    static _Atomic(unsigned) numbered;
    if (HAK_UNLIKELY(!HAK_LOAD_ACQUIRE(&count)))
        start();
    hak_self.light = hak_has_sequences && !hak_suspended;
    if (HAK_LIKELY(hak_has_sequences))
        return hak_rseq_cpu();
    if (!hak_self.number)
        hak_self.number = (uint16_t)(HAK_ADD_RELAXED(&numbered, 1) % NUMBERED + 1);
    return hak_self.number - 1;
}

static struct hak_heap *new_heap(unsigned cpu)
{
    static struct hak_arrays *spare; /* arrays for which no heap could be made */
    if (!spare)
        spare = hak_arrays_new();
    struct hak_heap *heap = spare ? hak_heap_new(spare) : NULL;
    if (!heap)
        return NULL;
    spare = NULL;
    heap->number = cpu;
    heap->scan_ms = hak_clock_ms();
    heap->lock = (struct hak_lock)HAK_LOCK_INIT(HAK_RANK_CPU_HEAP);
    return heap;
}

static void enter_locked(struct hak_heap *heap)
{
    hak_lock_acquire(&heap->lock);
    hak_counters_own = &heap->counters;
}

static void leave_locked(struct hak_heap *heap)
{
    hak_counters_own = NULL;
    hak_lock_release(&heap->lock);
}

/* Makes the heap and enters it; other threads can enter when it is complete. */
static struct hak_heap *make_heap(unsigned cpu)
{
    struct hak_heap *heap = new_heap(cpu);
    if (!heap)
        return NULL;
    heap->forking = hak_lock_take_for_fork(&heap->lock);
    enter_locked(heap);
    HAK_STORE_RELEASE(&heaps[cpu], heap);
    hak_arrays_open(cpu, heap->arrays);
    return heap;
}

static struct hak_heap *start_heap(unsigned cpu)
{
    hak_lock_acquire(&making);
    struct hak_heap *heap = HAK_LOAD_RELAXED(&heaps[cpu]);
    if (heap)
        enter_locked(heap);
    else
        heap = make_heap(cpu);
    hak_lock_release(&making);
    return heap;
}

struct hak_heap *hak_cpu_heap_enter(void)
{
    int cpu = current();
    struct hak_heap *heap = cpu < 0 ? NULL : HAK_LOAD_ACQUIRE(&heaps[cpu]);
    if (heap)
        enter_locked(heap);
    else if (cpu >= 0)
        heap = start_heap((unsigned)cpu);
    return heap;
}

void hak_cpu_heap_leave(struct hak_heap *heap)
{
    if (HAK_UNLIKELY(heap->kept)) {
        void *p = heap->kept;
        heap->kept = NULL;
        hak_drain_array(heap, &p, 1);
    }
    leave_locked(heap);
}

/* --- scans, idle CPUs --------------------------------------------------------------------------- */

void hak_cpu_heap_scan(uint64_t now_ms)
{
    struct hak_heap *heap = hak_cpu_heap_enter();
    if (!heap)
        return;
    heap->scan_ms = now_ms;
    hak_bins_scan_heap(heap, now_ms);
    hak_cpu_heap_leave(heap);
}

void hak_cpu_heap_give_up_slabs(void)
{
    struct hak_heap *heap = hak_cpu_heap_enter();
    if (!heap)
        return;
    hak_bins_give_up_slabs(heap);
    hak_cpu_heap_leave(heap);
}

/* A CPU whose threads do too little for a maintenance step looks idle: its heap is dissolved now and then, and refills
 * follow. */
static bool is_idle(const struct hak_heap *heap, uint64_t since_ms)
{
    return heap->scan_ms <= since_ms && (HAK_LOAD_RELAXED(&heap->slabs) || hak_bins_free_bytes(heap));
}

static void dissolve_on_cpu(struct hak_heap *heap)
{
    if (!hak_arrays_close(heap->number))
        return;
    hak_bins_dissolve(heap);
    hak_heap_end_parts(heap);
    hak_arrays_open(heap->number, heap->arrays);
}

void hak_cpu_heaps_dissolve(uint64_t since_ms)
{
    for (unsigned cpu = 0, n = HAK_LOAD_ACQUIRE(&count); cpu < n; cpu++) {
        struct hak_heap *heap = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (!heap)
            continue;
        enter_locked(heap);
        if (is_idle(heap, since_ms))
            dissolve_on_cpu(heap);
        leave_locked(heap);
    }
}

size_t hak_cpu_heaps_free_bytes(void)
{
    size_t bytes = 0;
    for (unsigned cpu = 0, n = HAK_LOAD_ACQUIRE(&count); cpu < n; cpu++) {
        const struct hak_heap *heap = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        bytes += heap ? hak_bins_free_bytes(heap) : 0;
    }
    return bytes;
}

/* --- fork ------------------------------------------------------------------------------------------------ */

void hak_cpu_heaps_lock(void)
{
    for (unsigned cpu = 0, n = HAK_LOAD_ACQUIRE(&count); cpu < n; cpu++) {
        struct hak_heap *heap = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (!heap)
            continue;
        hak_lock_acquire_sibling(&heap->lock);
        heap->forking = true;
    }
}

/* Also unlocks heaps made in the meantime, which were locked from the start. */
void hak_cpu_heaps_unlock(void)
{
    for (unsigned cpu = 0, n = HAK_LOAD_ACQUIRE(&count); cpu < n; cpu++) {
        struct hak_heap *heap = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (!heap || !heap->forking)
            continue;
        heap->forking = false;
        hak_lock_release_sibling(&heap->lock);
    }
}

void hak_cpu_heaps_lose_others(void)
{
    for (unsigned cpu = 0, n = HAK_LOAD_ACQUIRE(&count); cpu < n; cpu++) {
        struct hak_heap *heap = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (heap)
            hak_lock_lose(&heap->lock);
    }
}
