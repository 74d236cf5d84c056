/* SPDX-License-Identifier: MIT
 * The cache `cpu`: arrays of pointers to free blocks, one for each class, that belong to CPUs. Threads push and
 * pop, by restartable sequences (os/rseq.h), in those of the CPU that they run on. So however many threads there
 * are, there are as many arrays as CPUs. A block may lie in the arrays of any; all slabs have one tag.
 *
 * The fast path finds the closed arrays, which are empty and have no room, where the kernel does not know the thread,
 * where no slow path ran on the CPU yet, and while a thread empties its arrays. So it does in all
 * threads where sequences are off: then arrays belong to threads, and the slow path finds them. */
#ifndef HAK_CACHES_CPU_H
#define HAK_CACHES_CPU_H

#include "core/heap/caches/contract.h"
#include "core/heap/caches/slots/remote.h"
#include "core/os/rseq.h"
#include "core/parts/parts.h"

/* By number of CPU. Before number 0 stand those that the C library has for "none". */
#define HAK_CPUS_UNREAL 2
extern HAK_HIDDEN struct hak_arrays *hak_arrays_of[HAK_CPUS_UNREAL + HAK_CPUS];

/* p is freed, and is what the array took last. */
_Noreturn HAK_COLD void hak_cache_fail_twice(const void *p);

#if defined(__x86_64__)
#include "x86_64.h"
#else
#include "aarch64.h"
#endif

/* What one thread puts into an array, another takes out: thread sanitizer does not see how. */
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
/* A CPU's become the ones that its threads find, or no more: then only the caller touches them. False: the
 * kernel refused, they are still found. */
void hak_arrays_open(unsigned cpu, struct hak_arrays *arrays);
bool hak_arrays_close(unsigned cpu);
/* Switches restartable sequences on if they are usable. Returns the number of CPU ids; 0: sequences stay off. */
unsigned hak_arrays_start(void);

/* With sequences, of no CPU: NULL. */
HAK_INLINE void *hak_cache_first(unsigned cls)
{
    return *hak_self.arrays->top[cls];
}

void *hak_cache_pop_again(unsigned cls);
bool hak_cache_tick(struct hak_heap *heap, unsigned cls, void *p);
uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly);
void *hak_cache_taken(struct hak_heap *heap, unsigned cls);

HAK_INLINE bool hak_cache_can_hold(const struct hak_bin *b)
{
    (void)b;
    return true;
}

#endif
