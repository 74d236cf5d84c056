/* SPDX-License-Identifier: MIT
 * The heaps that slow entries work with. A thread enters one, works with its descriptor as the only one, and leaves it.
 * With the caches `list` and `array` it is the thread's own. With `cpu` it is the one of the processor that the thread
 * runs on, under its lock; or, where restartable sequences are off, the thread's own again. A thread that is moved to
 * another processor meanwhile goes on with what it entered: whose slabs these are does not depend on who uses them. */
#ifndef HAK_PROCESSOR_H
#define HAK_PROCESSOR_H

#include "core/os/rseq.h"
#include "thread.h"

/* Who has caches in this process. */
HAK_INLINE const char *hak_cache_owners(void)
{
    return hak_rseq_is_on() ? "processors" : "threads";
}

#if HAK_CACHE_CPU
/* At the library's start: the caches are processors' from here on, where restartable sequences are to be had. */
void hak_cache_begin(void);
/* NULL: as hak_thread_get. */
struct hak_thread *hak_heap_enter(void);
void hak_heap_leave(struct hak_thread *t);
/* The processors that nobody was seen on since then keep nothing: no block, no slab. The caller has entered no heap. */
void hak_processor_break_up(uint64_t since_ms);
/* For fork, when it has the lock to make them: all heaps of processors at once. Meanwhile only it makes any. */
void hak_processor_lock_all(void);
void hak_processor_unlock_all(void);
void hak_processor_lose_others(void); /* as hak_lock_lose_others */
#else
HAK_INLINE void hak_cache_begin(void)
{
}

HAK_INLINE struct hak_thread *hak_heap_enter(void)
{
    return hak_thread_get();
}

HAK_INLINE void hak_heap_leave(struct hak_thread *t)
{
    (void)t;
}

HAK_INLINE void hak_processor_break_up(uint64_t since_ms)
{
    (void)since_ms;
}

HAK_INLINE void hak_processor_lock_all(void)
{
}

HAK_INLINE void hak_processor_unlock_all(void)
{
}

HAK_INLINE void hak_processor_lose_others(void)
{
}
#endif

#endif
