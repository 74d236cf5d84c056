/* SPDX-License-Identifier: MIT
 * See background.h. */
#include "background.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "core/base/kernel.h"
#include "core/base/memcheck.h"
#include "core/base/sealed.h"

#define STACK (64 * HAK_KIB)
#define INTERVAL_MIN_MS 10u
#define INTERVAL_MAX_MS 1000u /* until the thread sees that settings have changed */

/* the process that last started the thread; a child made without fork handlers inherits the value */
static _Atomic(pid_t) process;
static _Atomic(uint64_t) rounds, started;

/* False if a seccomp filter refuses the sleep: then the thread ends, since it would spin otherwise. */
static bool rest(void)
{
    uint64_t ms = hak_min(INTERVAL_MAX_MS, hak_max(INTERVAL_MIN_MS, hak_options.purge_delay_ms / 2));
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    long result = HAK_SYSCALL(SYS_nanosleep, &time, NULL);
    return !result || result == -EINTR;
}

static void *run(void *purge)
{
    HAK_UNSEEN;
    while (rest() && hak_options.background) {
        HAK_ADD_RELAXED(&rounds, 1);
        ((void (*)(void))(uintptr_t)purge)();
    }
    HAK_STORE_RELAXED(&process, 0); /* another thread may start */
    return NULL;
}

static bool create(void *purge)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr))
        return false;
    pthread_attr_setstacksize(&attr, hak_max(STACK, (size_t)PTHREAD_STACK_MIN + STACK / 2));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits the mask */
    int error = pthread_create(&thread, &attr, run, purge);
    if (error == EINVAL) /* the program's thread-local storage does not fit */
        error = pthread_create(&thread, NULL, run, purge);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error == 0;
}

/* If no thread can be made, only the slow paths purge. */
void hak_background_start(void (*purge)(void))
{
    pid_t self = hak_kernel_pid();
    if (HAK_EXCHANGE_RELAXED(&process, self) != self)
        HAK_ADD_RELAXED(&started, create((void *)(uintptr_t)purge));
}

/* Another library's handler may have started the child's thread already: then `process` is not the parent's id. */
void hak_background_fork_child(pid_t parent)
{
    pid_t self = parent ? hak_kernel_pid() : 0;
    if (self == parent || HAK_LOAD_RELAXED(&process) != self)
        HAK_STORE_RELAXED(&process, 0);
}

void hak_background_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "background");
    hak_stats_number(w, "started", HAK_LOAD_RELAXED(&started));
    hak_stats_number(w, "rounds", HAK_LOAD_RELAXED(&rounds));
    hak_stats_end(w);
}
