/* SPDX-License-Identifier: MIT
 * See background.h. */
#include "background.h"

#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

#include "dispatch.h"
#include "log.h"

#define STACK (64 * HAK_KIB)
#define INTERVAL_MIN_MS 10u
#define CHILD_MS 100u /* a forked child shorter than that has no use for the thread */

_Atomic(bool) hak_background_wanted;

static _Atomic(int) state;
enum { NONE, STARTING, RUNNING, OVER }; /* OVER: at exit, or where no thread was to be had */
static _Atomic(bool) main_called;
static _Atomic(uint64_t) first_ms, rounds, started;
static pthread_t thread;
static sem_t stop;

static uint64_t interval_ms(void)
{
    return hak_max(INTERVAL_MIN_MS, hak_dispatch.options.purge_delay_ms);
}

/* False when the thread is to end. */
static bool wait_for(uint64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + ms % 1000 * 1000000;
    t.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return sem_clockwait(&stop, CLOCK_MONOTONIC, &t) != 0;
}

static void *purge(void *unused)
{
    while (wait_for(interval_ms()))
        do {
            atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
            hak_age();
        } while (hak_age_pending());
    return unused;
}

static size_t stack_size(void)
{
    return hak_max(STACK, (size_t)PTHREAD_STACK_MIN + STACK / 2);
}

static int create(void)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    pthread_attr_setstacksize(&attr, stack_size());
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it */
    error = pthread_create(&thread, &attr, purge, NULL);
    if (error == EINVAL) /* the program's thread-local storage does not fit */
        error = pthread_create(&thread, NULL, purge, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

/* Calls of malloc inside of pthread_create find STARTING. Without a thread to be had the slow paths go on alone. */
void hak_background_start(void)
{
    int expected = NONE, saved = errno;
    atomic_store_explicit(&hak_background_wanted, false, memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&state, &expected, STARTING))
        return;
    sem_init(&stop, 0, 0);
    bool running = create() == 0;
    atomic_fetch_add_explicit(&started, running, memory_order_relaxed);
    expected = STARTING;
    if (!atomic_compare_exchange_strong(&state, &expected, running ? RUNNING : OVER) && running)
        sem_post(&stop); /* the process ends meanwhile */
    errno = saved;
}

void hak_background_main(void)
{
    atomic_store_explicit(&main_called, true, memory_order_relaxed);
    if (hak_is_ready_for("HAKMEM_BACKGROUND") && hak_dispatch.options.background)
        hak_background_start();
}

void hak_background_want(uint64_t now_ms)
{
    if (atomic_load_explicit(&state, memory_order_relaxed) != NONE ||
        !atomic_load_explicit(&main_called, memory_order_relaxed))
        return;
    uint64_t first = atomic_load_explicit(&first_ms, memory_order_relaxed);
    if (!first)
        atomic_store_explicit(&first_ms, now_ms, memory_order_relaxed);
    else if (now_ms - first >= CHILD_MS)
        atomic_store_explicit(&hak_background_wanted, true, memory_order_relaxed);
}

void hak_background_stop(void)
{
    if (!hak_dispatch.options.background)
        return;
    if (atomic_exchange(&state, OVER) == RUNNING) {
        sem_post(&stop);
        if (!pthread_equal(thread, pthread_self()))
            pthread_join(thread, NULL);
    }
    if (!atomic_load_explicit(&main_called, memory_order_relaxed))
        hak_log("HAKMEM_BACKGROUND=1 started no thread: nothing told that main was called; call "
                "hakmem_main_called() at its beginning");
}

void hak_background_fork_child(void)
{
    if (!hak_dispatch.options.background)
        return;
    atomic_store_explicit(&state, NONE, memory_order_relaxed);
    atomic_store_explicit(&hak_background_wanted, false, memory_order_relaxed);
    atomic_store_explicit(&first_ms, 0, memory_order_relaxed);
}

void hak_background_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "background");
    hak_stats_number(w, "started", atomic_load_explicit(&started, memory_order_relaxed));
    hak_stats_number(w, "rounds", atomic_load_explicit(&rounds, memory_order_relaxed));
    hak_stats_end(w);
}
