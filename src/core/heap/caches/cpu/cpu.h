/* SPDX-License-Identifier: MIT
 * Arrays of pointers to free blocks, one for each class, that belong to CPUs, for threads without a heap of their own
 * (enter.h). They push to and pop from the arrays of the CPU on which they run, by restartable sequences (os/rseq.h),
 * which the slow entries call first. A block may lie in the arrays of any CPU, whatever heap its slab belongs to.
 *
 * Sequences find the closed arrays, which are empty and have no room, if the thread is not registered with rseq, if no
 * slow path has run on the CPU yet, and while a thread empties the CPU's arrays. If sequences are off, arrays belong to
 * a few heaps that threads choose by number, and only the thread that holds the heap's lock uses them. */
#ifndef HAK_CACHES_CPU_H
#define HAK_CACHES_CPU_H

#include "core/heap/heap.h"
#include "core/os/rseq.h"

/* The slots of each class follow those of the previous one. The first slot is NULL, so that malloc detects an empty
 * array by the load that it needs anyway. */
struct hak_arrays {
    void **top[HAK_NCLASSES];   /* the last slot that holds a block */
    void **end[HAK_NCLASSES];   /* the last slot */
    int32_t room[HAK_NCLASSES]; /* frees until the array is checked: at most its free slots; negative: now */
    void *slots[];
};

/* Indexed by CPU id, after two entries for the negative ids by which the C library says that there is none. */
#define HAK_CPUS_UNREAL 2
extern HAK_HIDDEN struct hak_arrays *hak_arrays_of[HAK_CPUS_UNREAL + HAK_CPUS];

/* Stops the process: p is freed, and is already the last block of the array. */
_Noreturn HAK_COLD void hak_cache_fail_twice(const void *p);

/* Each block in an array carries this mark in its first word. The mark is gone if a second free gave the block to
 * another thread as well, which has written to it. Malloc and drains clear it: a free that finds it is a second one. */
HAK_INLINE uint64_t hak_cpu_mark(const void *p)
{
    return (uintptr_t)p ^ (uint64_t)-0x61c88647; /* one operand of an instruction */
}

_Noreturn HAK_COLD void hak_cpu_fail_mark(const void *p);

HAK_INLINE void hak_cpu_take_mark(void *p)
{
    if (HAK_UNLIKELY(*(uint64_t *)p != hak_cpu_mark(p)))
        hak_cpu_fail_mark(p);
    *(uint64_t *)p = 0;
}

/* An interrupted sequence leads to the slow path, which may use others; those that move several blocks are restarted,
 * but only so often in one call, and then move none: the block comes from a slab, or returns to one. So each call ends
 * even if every sequence is interrupted, as by a debugger that single-steps. */
#define HAK_RSEQ_TRIES 4

#if !HAK_SEQUENCES
#include "none.h"
#elif defined(__x86_64__)
#include "x86_64.h"
#else
#include "aarch64.h"
#endif

/* NULL without memory. */
struct hak_arrays *hak_arrays_new(void);
/* Makes arrays visible to the threads on a CPU. */
void hak_arrays_open(unsigned cpu, struct hak_arrays *arrays);
/* Hides the arrays of a CPU, so that only the caller touches them. False: the kernel refused, and they are still
 * visible. */
bool hak_arrays_close(unsigned cpu);
extern bool hak_has_sequences;
/* Switches restartable sequences on if they are usable. Returns the number of CPU ids; 0: sequences stay off. */
unsigned hak_arrays_start(void);

/* A thread that finds no heap has pushed to the closed arrays. */
void hak_cpu_leave(unsigned cls);

/* What array/cache_bins.h does with the heap of a CPU, which the caller has entered. */
void *hak_cpu_take_one(struct hak_heap *heap, unsigned cls);
uint32_t hak_cpu_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want);
void *hak_cpu_taken(struct hak_heap *heap, unsigned cls);
void hak_cpu_check(struct hak_heap *heap, unsigned cls, void *p);
void hak_cpu_halve(struct hak_heap *heap, unsigned cls);
/* The arrays are closed. */
void hak_cpu_drain(struct hak_heap *heap, unsigned cls);

uint32_t hak_cpu_length(const struct hak_heap *heap, unsigned cls);

#endif
