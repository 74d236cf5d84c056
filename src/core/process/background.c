/* SPDX-License-Identifier: MIT
 * See background.h. */
#include "background.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/memcheck.h"
#include "core/base/sealed.h"

#define STACK (64 * HAK_KIB)
#define INTERVAL_MIN_MS 10u
#define START_MS 100u /* constructors are over by then, and a shorter process has no use for the thread */

static _Atomic(int) state;
enum { NONE, STARTING, RUNNING, OVER }; /* OVER: at exit, or where no thread was to be had */
static _Atomic(uint64_t) first_ms, rounds, started;
static pthread_t thread;
static _Atomic(pid_t) process; /* the thread's */
static pthread_mutex_t mutex; /* guards `stopping`; the two below are made anew for each thread */
static pthread_cond_t condition;
static bool stopping;

static uint64_t interval_ms(void)
{
    return hak_max(INTERVAL_MIN_MS, hak_options.purge_delay_ms / 2);
}

static struct timespec in_ms(uint64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + ms * 1000000;
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

/* False when the thread is to end. */
static bool wait_for(uint64_t ms)
{
    struct timespec until = in_ms(ms);
    pthread_mutex_lock(&mutex);
    while (!stopping && pthread_cond_timedwait(&condition, &mutex, &until) == 0)
        ;
    bool go_on = !stopping;
    pthread_mutex_unlock(&mutex);
    return go_on;
}

static void *run(void *purge)
{
    HAK_UNSEEN;
    while (wait_for(interval_ms())) {
        HAK_ADD_RELAXED(&rounds, 1);
        ((void (*)(void))(uintptr_t)purge)();
    }
    return NULL;
}

static void make_condition(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&condition, &attr);
    pthread_condattr_destroy(&attr);
    stopping = false;
}

static size_t stack_size(void)
{
    return hak_max(STACK, (size_t)PTHREAD_STACK_MIN + STACK / 2);
}

static int create(void *purge)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    pthread_attr_setstacksize(&attr, stack_size());
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it */
    error = pthread_create(&thread, &attr, run, purge);
    if (error == EINVAL) /* the program's thread-local storage does not fit */
        error = pthread_create(&thread, NULL, run, purge);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

static void tell_to_stop(void)
{
    pthread_mutex_lock(&mutex);
    stopping = true;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
}

/* Calls of malloc inside of pthread_create find STARTING. Without a thread to be had the slow paths go on alone. */
void hak_background_start(void (*purge)(void))
{
    int expected = NONE, saved = errno;
    if (HAK_LOAD_RELAXED(&state) != NONE)
        return;
    HAK_STORE_RELAXED(&process, getpid());
    if (!atomic_compare_exchange_strong(&state, &expected, STARTING))
        return;
    make_condition();
    bool running = create((void *)(uintptr_t)purge) == 0;
    HAK_ADD_RELAXED(&started, running);
    expected = STARTING;
    if (!atomic_compare_exchange_strong(&state, &expected, running ? RUNNING : OVER) && running)
        tell_to_stop(); /* the process ends meanwhile */
    errno = saved;
}

void hak_background_begin(void)
{
    HAK_STORE_RELAXED(&first_ms, hak_clock_ms());
}

/* A program's constructor may call before the library's. */
void hak_background_want(uint64_t now_ms, void (*purge)(void))
{
    if (HAK_LOAD_RELAXED(&state) != NONE)
        return;
    uint64_t first = HAK_LOAD_RELAXED(&first_ms);
    if (!first)
        HAK_STORE_RELAXED(&first_ms, now_ms);
    else if (hak_clock_age(first, now_ms) >= START_MS)
        hak_background_start(purge);
}

void hak_background_stop(void)
{
    if (!hak_options.background || atomic_exchange(&state, OVER) != RUNNING)
        return;
    tell_to_stop();
    if (!pthread_equal(thread, pthread_self()))
        pthread_join(thread, NULL);
}

void hak_background_fork_child(pid_t parent)
{
    pid_t self = getpid();
    if (!hak_options.background || (self != parent && HAK_LOAD_RELAXED(&process) == self))
        return;
    HAK_STORE_RELAXED(&state, NONE);
    hak_background_begin();
}

void hak_background_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "background");
    hak_stats_number(w, "started", HAK_LOAD_RELAXED(&started));
    hak_stats_number(w, "rounds", HAK_LOAD_RELAXED(&rounds));
    hak_stats_end(w);
}
