/* SPDX-License-Identifier: MIT
 * See background.h. */
#include "background.h"

#include <sys/mman.h>
#include <time.h>

#include "core/base/file.h"
#include "core/base/kernel.h"
#include "core/base/lock.h"
#include "core/base/memcheck.h"
#include "core/base/sealed.h"
#include "core/base/text.h"
#include "core/base/work.h"
#include "core/heap/heap.h"
#include "core/os/os.h"
#include "core/os/rseq.h"

#define STACK (64 * HAK_KIB)
#define STORAGE (16 * HAK_KIB)
#define INTERVAL_MIN_MS 10u
#define INTERVAL_MAX_MS 500u /* until the thread sees that settings or rights have changed */
#define STATUS (4 * HAK_KIB) /* /proc/PID/status is shorter, but for the ids of many groups */

static _Atomic(pid_t) process; /* the process that last started the thread */
static _Atomic(int) thread;    /* its id; the kernel sets 0 when it has ended; STARTING: it is being made */
enum { STARTING = -1 };
static char *memory; /* its stack and its storage; made once */
static bool (*purge_idle)(void);
static _Atomic(uint64_t) rounds, started;

/* --- in the thread ---------------------------------------------------------------------------------------- */

static uint64_t interval_ms(void)
{
    return hak_max(INTERVAL_MIN_MS, hak_min(hak_options.purge_delay_ms / 2, INTERVAL_MAX_MS));
}

/* False if a seccomp filter refuses the sleep: then the thread ends, since it would spin otherwise. */
static bool rest(uint64_t ms)
{
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    long result = HAK_SYSCALL(SYS_nanosleep, &time, NULL);
    return !result || result == -EINTR;
}

static bool is_same_line(const char *one, const char *other, const char *name)
{
    one = hak_text_behind(one, name);
    other = hak_text_behind(other, name);
    for (; one && other && *one == *other && *one && *one != '\n'; one++, other++)
        ;
    return !one || !other || *one == *other;
}

/* The rights of a process are those of each thread. A program that drops some drops those of its own threads. */
static bool has_rights_of_process(void)
{
    char first[STATUS], own[STATUS];
    return !hak_file_read("/proc/self/status", first, sizeof first) ||
           !hak_file_read("/proc/thread-self/status", own, sizeof own) ||
           (is_same_line(first, own, "\nUid:") && is_same_line(first, own, "\nGid:") &&
            is_same_line(first, own, "\nGroups:") && is_same_line(first, own, "\nCapPrm:"));
}

static _Noreturn void run(void)
{
    HAK_UNSEEN;
    uint64_t ms, unchecked = 0;
    HAK_SYSCALL(SYS_chdir, "/"); /* as daemons do, so that it keeps no file system in use */
    do {
        ms = interval_ms();
        unchecked = unchecked < INTERVAL_MAX_MS ? unchecked + ms : ms;
        if (!rest(ms) || !hak_options.background || (unchecked >= INTERVAL_MAX_MS && !has_rights_of_process()))
            break;
        HAK_ADD_RELAXED(&rounds, 1);
    } while (purge_idle());
    for (;;)
        HAK_SYSCALL(SYS_exit, 0);
}

/* --- how it begins ---------------------------------------------------------------------------------------- */

static void include(uintptr_t *from, uintptr_t *end, const void *p, size_t size)
{
    *from = hak_min(*from, (uintptr_t)p);
    *end = hak_max(*end, (uintptr_t)p + size);
}

/* The part of the calling thread's storage that has what the library uses of it, and what the compiler does at the
 * thread pointer. Its length is the same for each thread. */
static void find_storage(uintptr_t *from, uintptr_t *end)
{
    size_t size;
    const void *lock_self = hak_lock_self(&size);
    *from = (uintptr_t)hak_kernel_thread_pointer();
    *end = *from + HAK_CACHELINE;
    include(from, end, lock_self, size);
    include(from, end, &hak_self, sizeof hak_self);
    include(from, end, &hak_work, sizeof hak_work);
    include(from, end, &hak_counters_own, sizeof(void *));
    if (HAK_CPU_HEAPS) {
        include(from, end, hak_rseq_none, sizeof hak_rseq_none);
        include(from, end, (char *)hak_rseq_none + hak_rseq_distance, sizeof hak_rseq_none);
    }
    *from &= ~(uintptr_t)(HAK_CACHELINE - 1);
}

/* As that of a thread whose heap has ended. An earlier thread's may have begun elsewhere: before hak_rseq_distance was
 * known, or in the parent. */
static void set_up_storage(ptrdiff_t distance, size_t size)
{
    hak_fill(memory + STACK, 0, size);
    struct hak_cache *cache = (struct hak_cache *)((char *)&hak_self + distance);
    hak_move(cache, &hak_self, sizeof *cache);
    cache->tag = HAK_TAG_NOBODY;
    cache->heap = NULL;
    cache->ended = true;
    if (HAK_CPU_HEAPS) { /* the kernel has no sequences of the thread */
        char *area = (char *)hak_rseq_none + distance;
        *(int32_t *)(area + HAK_RSEQ_CPU) = *(int32_t *)(area + hak_rseq_distance + HAK_RSEQ_CPU) = -1;
    }
}

/* Below the stack lies a closed page. */
static bool make_memory(void)
{
    void *base;
    if (!memory && !hak_os_map(&base, STACK + STORAGE, PROT_READ | PROT_WRITE, HAK_CAUSE_metadata)) {
        hak_os_protect(base, hak_os_page_size(), PROT_NONE, HAK_CAUSE_guard);
        memory = base;
    }
    return memory;
}

static bool create(void)
{
    uintptr_t from, end;
    uint64_t all = ~(uint64_t)0, before;
    find_storage(&from, &end);
    if (!HAK_OWN_THREADS || end - from > STORAGE || !make_memory())
        return false;
    ptrdiff_t distance = memory + STACK - (char *)from;
    set_up_storage(distance, end - from);
    HAK_SYSCALL(SYS_rt_sigprocmask, 2, &all, &before, sizeof all); /* SIG_SETMASK; the thread inherits the mask */
    long result = hak_kernel_start_thread(memory + STACK, distance, &thread, run);
    HAK_SYSCALL(SYS_rt_sigprocmask, 2, &before, NULL, sizeof before);
    return result > 0;
}

/* If no thread can be made, only the slow paths purge. */
void hak_background_start(bool (*purge)(void))
{
    int none = 0;
    if (HAK_LOAD_RELAXED(&thread) || !HAK_CAS_RELAXED(&thread, &none, STARTING))
        return;
    HAK_STORE_RELAXED(&process, hak_kernel_pid());
    purge_idle = purge;
    if (create())
        HAK_ADD_RELAXED(&started, 1);
    else
        HAK_STORE_RELAXED(&thread, 0);
}

/* Another library's handler may have started the child's thread already: then `process` is not the parent's id. */
void hak_background_fork_child(pid_t parent)
{
    pid_t self = parent ? hak_kernel_pid() : 0;
    if (self == parent || HAK_LOAD_RELAXED(&process) != self)
        HAK_STORE_RELAXED(&thread, 0);
}

void hak_background_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "background");
    hak_stats_number(w, "started", HAK_LOAD_RELAXED(&started));
    hak_stats_number(w, "rounds", HAK_LOAD_RELAXED(&rounds));
    hak_stats_end(w);
}
