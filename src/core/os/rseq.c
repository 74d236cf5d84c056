/* SPDX-License-Identifier: MIT
 * See rseq.h. */
#include "rseq.h"

#include "core/base/kernel.h"
#include "core/base/sealed.h"

/* linux/membarrier.h, since Linux 5.10 */
#define FENCE_SEQUENCES (1 << 7)
#define REGISTER_FOR_FENCES (1 << 8)
#define OF_ONE_CPU 1

/* glibc's, since 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

/* Writable, since sequences write to it before they know that the thread is not registered. */
HAK_THREAD_LOCAL int32_t hak_rseq_none[8] __attribute__((aligned(32), used)) = {0, -1};
/* Sequences name these, which a link-time optimiser does not see. */
ptrdiff_t hak_rseq_distance __attribute__((used));
ptrdiff_t hak_rseq_offset __attribute__((used));

/* A function, since linkers cannot subtract addresses of thread-local data. */
static HAK_NOINLINE char *own_area(void)
{
    return (char *)hak_rseq_none;
}

static ptrdiff_t distance_to_rseq(void)
{
    return hak_kernel_thread_pointer() + __rseq_offset - own_area();
}

static int cpu_at(ptrdiff_t at)
{
    return *(const volatile int32_t *)(own_area() + at + HAK_RSEQ_CPU);
}

static bool register_for_fences(void)
{
    return !HAK_SYSCALL(SYS_membarrier, REGISTER_FOR_FENCES, 0, 0);
}

/* The kernel refuses a mask shorter than its own, and returns the number of bytes that it has written. */
static unsigned count_cpus(void)
{
    uint64_t mask[HAK_CPUS / 64];
    long bytes = HAK_SYSCALL(SYS_sched_getaffinity, 0, sizeof mask, mask);
    return bytes > 0 ? (unsigned)bytes * 8 : 0;
}

unsigned hak_rseq_find(void)
{
    if (hak_options.sandbox || !&__rseq_size || !&__rseq_offset || !__rseq_size || cpu_at(distance_to_rseq()) < 0)
        return 0;
    return count_cpus();
}

void hak_rseq_set_distance(ptrdiff_t to)
{
    *(volatile ptrdiff_t *)&hak_rseq_distance = to;
    *(volatile ptrdiff_t *)&hak_rseq_offset = own_area() + to - hak_kernel_thread_pointer();
}

void hak_rseq_switch_on(void)
{
    hak_rseq_set_distance(distance_to_rseq());
}

int hak_rseq_cpu(void)
{
    return cpu_at(hak_rseq_distance);
}

static bool fence_cpu(int cpu)
{
    return !HAK_SYSCALL(SYS_membarrier, FENCE_SEQUENCES, OF_ONE_CPU, cpu);
}

bool hak_rseq_fence(int cpu)
{
    return fence_cpu(cpu) || (register_for_fences() && fence_cpu(cpu));
}
