/* SPDX-License-Identifier: MIT
 * See processor.h. A processor gets its heap when a thread comes to a slow path on it, and keeps it. */
#include "processor.h"

#include "caches/chosen.h"
#include "core/base/clock.h"
#include "drain.h"
#include "heap.h"
#include "remote_cache.h"

static _Atomic(struct hak_thread *) heaps[HAK_CPUS]; /* released when they are whole; acquired by who uses one */
static unsigned cpus; /* numbers of them; 0 while sequences are off */
static HAK_LOCK(making, HAK_RANK_MAKING); /* to write `heaps` */

void hak_cache_begin(void)
{
    cpus = hak_arrays_start();
}

static struct hak_thread *new_heap(unsigned cpu)
{
    struct hak_thread *t = hak_thread_new();
    if (!t)
        return NULL;
    if (!t->arrays && !(t->arrays = hak_arrays_new())) {
        hak_thread_recycle(t);
        return NULL;
    }
    t->tag = HAK_TAG_PROCESSORS;
    t->cpu = cpu;
    t->lock = (struct hak_lock)HAK_LOCK_INIT(HAK_RANK_PROCESSOR);
    return t;
}

static void enter_locked(struct hak_thread *t)
{
    hak_lock_acquire(&t->lock);
    hak_counters_own = &t->counters;
}

static void leave_locked(struct hak_thread *t)
{
    hak_counters_own = NULL;
    hak_lock_release(&t->lock);
}

/* Makes it and enters it; others come in when all is ready. */
static struct hak_thread *make_heap(unsigned cpu)
{
    struct hak_thread *t = new_heap(cpu);
    if (!t)
        return NULL;
    t->forking = hak_lock_take_for_fork(&t->lock);
    enter_locked(t);
    HAK_STORE_RELEASE(&heaps[cpu], t);
    hak_self.arrays = t->arrays;
    hak_thread_start_parts(t);
    hak_self.arrays = &hak_arrays_closed;
    hak_arrays_open(cpu, t->arrays);
    return t;
}

static struct hak_thread *start_heap(unsigned cpu)
{
    hak_lock_acquire(&making);
    struct hak_thread *t = HAK_LOAD_RELAXED(&heaps[cpu]);
    if (t)
        enter_locked(t);
    else
        t = make_heap(cpu);
    hak_lock_release(&making);
    return t;
}

static struct hak_thread *enter_here(void)
{
    int cpu = hak_rseq_cpu();
    struct hak_thread *t = cpu < 0 ? NULL : HAK_LOAD_ACQUIRE(&heaps[cpu]);
    if (t)
        enter_locked(t);
    else if (cpu >= 0)
        t = start_heap((unsigned)cpu);
    if (t)
        HAK_STORE_RELAXED(&t->entered, true);
    return t;
}

struct hak_thread *hak_heap_enter(void)
{
    return hak_rseq_is_on() ? enter_here() : hak_thread_get();
}

void hak_heap_leave(struct hak_thread *t)
{
    if (!t || !hak_rseq_is_on())
        return;
    if (HAK_UNLIKELY(t->kept)) {
        void *p = t->kept;
        t->kept = NULL;
        hak_drain_array(t, &p, 1);
    }
    leave_locked(t);
}

/* --- processors at rest ---------------------------------------------------------------------------------- */

/* One that works on its arrays alone is not seen: it is broken up now and then, and refills them. */
static bool is_idle(struct hak_thread *t, uint64_t since_ms)
{
    if (HAK_LOAD_RELAXED(&t->entered)) {
        HAK_STORE_RELAXED(&t->entered, false);
        t->idle_ms = hak_clock_ms();
    }
    return t->idle_ms <= since_ms && (HAK_LOAD_RELAXED(&t->slabs) || hak_heap_parked_bytes(t));
}

static void dissolve_on_cpu(struct hak_thread *t)
{
    if (!hak_arrays_close(t->cpu))
        return;
    hak_remote_cache_flush(t);
    hak_heap_abandon(t);
    hak_thread_end_parts(t);
    hak_arrays_open(t->cpu, t->arrays);
}

void hak_processor_break_up(uint64_t since_ms)
{
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        struct hak_thread *t = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (!t)
            continue;
        enter_locked(t);
        if (is_idle(t, since_ms))
            dissolve_on_cpu(t);
        leave_locked(t);
    }
}

/* --- fork ------------------------------------------------------------------------------------------------ */

void hak_processor_lock_all(void)
{
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        struct hak_thread *t = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (!t)
            continue;
        hak_lock_acquire_sibling(&t->lock);
        t->forking = true;
    }
}

/* And those that were made meanwhile, which were locked from the start. */
void hak_processor_unlock_all(void)
{
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        struct hak_thread *t = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (!t || !t->forking)
            continue;
        t->forking = false;
        hak_lock_release_sibling(&t->lock);
    }
}

void hak_processor_lose_others(void)
{
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        struct hak_thread *t = HAK_LOAD_ACQUIRE(&heaps[cpu]);
        if (t)
            hak_lock_lose(&t->lock);
    }
}
