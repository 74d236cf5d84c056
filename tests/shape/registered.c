/* SPDX-License-Identifier: MIT
 * A library to preload beside hakmem: it says that each thread is registered for restartable sequences, and on
 * CPU 0. Valgrind and qemu do not support registration; they never interrupt a program with one thread, so
 * sequences may run there. The constructor of the last preloaded library runs first. */
#include <stddef.h>
#include <stdint.h>

static __thread int32_t area[8] __attribute__((aligned(32), tls_model("initial-exec")));

extern ptrdiff_t __rseq_offset;
extern unsigned __rseq_size;

ptrdiff_t __rseq_offset;
unsigned __rseq_size;

__attribute__((constructor)) static void claim(void)
{
    __rseq_offset = (char *)area - (char *)__builtin_thread_pointer();
    __rseq_size = sizeof area;
}
