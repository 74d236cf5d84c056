/* SPDX-License-Identifier: MIT
 * What the kernel offers to a process, without the C library: any library of a program may replace the C library's
 * functions, and allocate in them. A system call here leaves errno alone and is no cancellation point. */
#ifndef HAK_KERNEL_H
#define HAK_KERNEL_H

#include <sys/syscall.h>

#include "words.h"

/* The kernel's result, or -errno. */
long hak_syscall(long number, long a, long b, long c, long d, long e, long f);
#define HAK_SYSCALL_SIX(number, a, b, c, d, e, f, ...) \
    hak_syscall(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* The same with one to six arguments of any type. */
#define HAK_SYSCALL(number, ...) HAK_SYSCALL_SIX(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)

HAK_INLINE int hak_kernel_pid(void)
{
    return (int)HAK_SYSCALL(SYS_getpid, 0);
}

/* Sends a signal to the calling thread. */
void hak_kernel_raise(int number);

/* Starts a thread that the C library does not know. It calls `run`, which does not return, and blocks the signals that
 * this one blocks. Its storage lies `distance` bytes behind this thread's. *id becomes its id, or 0 when it has ended.
 * Returns -errno if there is none. */
long hak_kernel_start_thread(char *stack_end, ptrdiff_t distance, _Atomic(int) *id, void (*run)(void));

char *hak_kernel_thread_pointer(void);

/* The environment as the kernel passed it; NULL if it cannot be found. */
char **hak_kernel_environment(void);
/* An entry of the auxiliary vector (AT_*); 0 if there is none. */
uintptr_t hak_kernel_auxv(uintptr_t type);
/* Nanoseconds of a clock (CLOCK_*), without a system call if possible; 0 if the kernel refuses. */
uint64_t hak_kernel_clock(int clock);

#endif
