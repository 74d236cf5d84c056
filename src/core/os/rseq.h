/* SPDX-License-Identifier: MIT
 * Restartable sequences: code that the kernel aborts when it preempts the thread in it, moves it to another CPU, or
 * delivers a signal. So a sequence changes per-CPU data without a lock or an atomic operation. The C library registers
 * each thread with the kernel (glibc since 2.35). If it does not, sequences are off for the life of the process. */
#ifndef HAK_RSEQ_H
#define HAK_RSEQ_H

#include "core/base/words.h"

#define HAK_CPUS 1024 /* most CPU ids; with more, sequences are off */

/* The rseq area, which a thread shares with the kernel, has `cpu_id`, negative if the thread is not registered, and
 * `rseq_cs`, the sequence that it is in. The area is the C library's, at hak_rseq_distance from hak_rseq_none; before
 * start and while sequences are off, the distance is 0, and the area is hak_rseq_none, which says "not registered". */
#define HAK_RSEQ_CPU 4
#define HAK_RSEQ_CS 8
extern HAK_HIDDEN HAK_THREAD_LOCAL int32_t hak_rseq_none[8];
extern HAK_HIDDEN ptrdiff_t hak_rseq_distance;
void hak_rseq_set_distance(ptrdiff_t to);
extern HAK_HIDDEN ptrdiff_t hak_rseq_offset; /* offset of the area from the thread's base register, once started */
/* The four bytes before an abort handler, as the C library told the kernel. */
#define HAK_RSEQ_SIGNATURE_X86_64 "0x53053053"
#define HAK_RSEQ_SIGNATURE_AARCH64 "0xd428bc00"

/* The number of CPU ids, or a few more, if rseq is usable in this process; else 0. */
unsigned hak_rseq_find(void);
/* Switches sequences on. */
void hak_rseq_switch_on(void);
/* The CPU on which the calling thread runs; negative if it is not registered. */
int hak_rseq_cpu(void);
/* When this returns, sequences that ran on the CPU at the call have ended or were aborted. False: the kernel
 * cannot do it (before Linux 5.10, or in a sandbox). */
bool hak_rseq_fence(int cpu);

#endif
