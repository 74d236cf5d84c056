/* SPDX-License-Identifier: MIT
 * Restartable sequences: code that the kernel restarts when it preempts the thread in it, moves it to another
 * CPU, or delivers a signal. So it changes what belongs to a CPU without a lock or an atomic. The C library registers
 * each thread with the kernel (glibc since 2.35). Where it does not, or the kernel cannot interrupt the sequences of a
 * CPU, they are off for all of the process's life. */
#ifndef HAK_RSEQ_H
#define HAK_RSEQ_H

#include "core/base/words.h"

#define HAK_CPUS 1024 /* numbers of CPUs; with more, sequences are off */

/* What a thread shares with the kernel has `cpu_id`, negative where the thread is not registered, and `rseq_cs`, which
 * sequence it is in. It is the C library's, which lies so far behind an area of our own that says "not registered"; or
 * that area, before the start and while sequences are off. */
extern HAK_HIDDEN HAK_THREAD_LOCAL int32_t hak_rseq_none[8];
extern HAK_HIDDEN ptrdiff_t hak_rseq_distance;
void hak_rseq_set_distance(ptrdiff_t to);
extern HAK_HIDDEN ptrdiff_t hak_rseq_offset; /* of the same from the thread's base register, once the library has started */
#define HAK_RSEQ_CPU 4
#define HAK_RSEQ_CS 8
/* In the four bytes before the place to which the kernel sends one back, as the C library told it. */
#define HAK_RSEQ_SIGNATURE_X86_64 "0x53053053"
#define HAK_RSEQ_SIGNATURE_AARCH64 "0xd428bc00"

/* The number of CPU ids, or a few more, if rseq is usable in this process; else 0. */
unsigned hak_rseq_find(void);
/* Switches sequences on. */
void hak_rseq_switch_on(void);
/* The CPU that the calling thread runs on; negative where it is not registered. */
int hak_rseq_cpu(void);
/* Sequences that ran on the CPU when this was called have ended, or will not. False: the kernel refused. */
bool hak_rseq_fence(int cpu);

#endif
