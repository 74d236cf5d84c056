/* SPDX-License-Identifier: MIT
 * The cache `cpu`: arrays of pointers to free blocks, one for each class, that belong to CPUs. Threads push to and pop
 * from the arrays of the CPU on which they run, by restartable sequences (os/rseq.h). So the number of arrays depends
 * on the CPUs, not on the threads. A block may lie in the arrays of any CPU; all slabs have the same tag.
 *
 * The fast path finds the closed arrays, which are empty and have no room, if the thread is not registered with rseq,
 * if no slow path has run on the CPU yet, and while a thread empties the CPU's arrays.
 *
 * If sequences are off, arrays belong to threads. A number of its own takes the place of the CPU id in a thread's area
 * (hak_rseq_none), so the same code finds the thread's arrays; nothing needs to interrupt it. */
#ifndef HAK_CACHES_CPU_H
#define HAK_CACHES_CPU_H

#include "core/heap/caches/contract.h"
#include "core/heap/caches/slots/remote.h"
#include "core/os/rseq.h"
#include "core/parts/parts.h"

/* Indexed by CPU id, after two entries for the negative ids by which the C library says that there is none. */
#define HAK_CPUS_UNREAL 2
extern HAK_HIDDEN struct hak_arrays *hak_arrays_of[HAK_CPUS_UNREAL + HAK_OWNERS];

/* Stops the process: p is freed, and is already the last block of the array. */
_Noreturn HAK_COLD void hak_cache_fail_twice(const void *p);

/* An interrupted sequence leads to the slow path, which may use others; those that move several blocks are restarted,
 * but only so often in one call, and then move none: the block comes from a slab, or returns to one. So each call ends
 * even if every sequence is interrupted, as by a debugger that single-steps. */
#define HAK_RSEQ_TRIES 4

#if defined(__x86_64__)
#include "x86_64.h"
#else
#include "aarch64.h"
#endif

/* One thread takes out what another has put into an array: thread sanitizer does not see that synchronisation. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#else
HAK_INLINE void __tsan_acquire(void *p)
{
    (void)p;
}

HAK_INLINE void __tsan_release(void *p)
{
    (void)p;
}
#endif

HAK_INLINE void *hak_cache_pop(hak_cache_ref self, unsigned cls)
{
    (void)self;
    void *p = hak_rseq_pop(cls);
    if (p)
        __tsan_acquire(p);
    return p;
}

HAK_INLINE void *hak_cache_try_pop(hak_cache_ref self, unsigned cls)
{
    return hak_cache_pop(self, cls);
}

HAK_INLINE bool hak_cache_push(hak_cache_ref self, uint64_t cls, void *p)
{
    (void)self;
    __tsan_release(p);
    return HAK_LIKELY(hak_rseq_push(cls, p));
}

/* Arrays for a thread or a CPU; NULL without memory. */
struct hak_arrays *hak_arrays_new(void);
/* Makes arrays visible to the threads on a CPU, or to the thread with that number. */
void hak_arrays_open(unsigned number, struct hak_arrays *arrays);
/* Hides the arrays of a CPU, so that only the caller touches them. False: the kernel refused, and they are still
 * visible. */
bool hak_arrays_close(unsigned cpu);
/* Switches restartable sequences on if they are usable. Returns the number of CPU ids; 0: sequences stay off. */
unsigned hak_arrays_start(void);

/* NULL with sequences, since it would depend on the CPU. */
HAK_INLINE void *hak_cache_first(unsigned cls)
{
    return *hak_self.arrays->top[cls];
}

void *hak_cache_pop_again(unsigned cls);

/* Each tick is a check. */
HAK_INLINE bool hak_cache_tick(struct hak_heap *heap, unsigned cls, void *p)
{
    (void)heap, (void)cls, (void)p;
    return false;
}

uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly);
void *hak_cache_taken(struct hak_heap *heap, unsigned cls);

HAK_INLINE bool hak_cache_can_hold(const struct hak_bin *b)
{
    (void)b;
    return true;
}

#endif
