/* SPDX-License-Identifier: MIT */
/*
 * Times single calls, to the nanosecond if the CPU has a counter that programs can read.
 * The cost of reading it is measured at start and subtracted. The time for which a thread waited for a CPU meanwhile is
 * also subtracted, if the kernel reports it (/proc/thread-self/schedstat): otherwise other programs of the machine
 * would cause the tail. It is read only after a long call or a long pause, outside of the timed interval.
 */
#ifndef HAKMEM_BENCH_STOPWATCH_H
#define HAKMEM_BENCH_STOPWATCH_H

#include "bench.h"

#include <fcntl.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Ordered after all instructions before it, and before all that follow. */
static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
#else
    return bench_now_ns();
#endif
}

/* Properties of the machine; measured once, read by all threads. */
struct ticks {
    double ns;         /* in one tick */
    uint64_t overhead; /* ticks between two readings with nothing in between */
    uint64_t pause;    /* ticks; a longer call may include a wait for a CPU */
};

static inline int compare_ticks(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static inline struct ticks ticks_measure(void)
{
    enum { READINGS = 1001, CALIBRATION_MS = 50, PAUSE_NS = 10000 };
    static uint64_t between[READINGS];
    struct ticks ticks;
    uint64_t ns = bench_now_ns(), begin = ticks_now();
    bench_wait_ms(CALIBRATION_MS);
    ticks.ns = (double)(bench_now_ns() - ns) / (double)(ticks_now() - begin);
    for (unsigned i = 0; i < READINGS; i++) {
        begin = ticks_now();
        between[i] = ticks_now() - begin;
    }
    qsort(between, READINGS, sizeof between[0], compare_ticks);
    ticks.overhead = between[READINGS / 2];
    ticks.pause = (uint64_t)(PAUSE_NS / ticks.ns);
    return ticks;
}

/* Of one thread. */
struct stopwatch {
    const struct ticks *ticks;
    int fd;            /* schedstat; -1: the kernel has none */
    uint64_t stopped;  /* when the last call had ended */
    uint64_t delay_ns; /* the thread's total wait for a CPU, when last read */
    uint64_t taken_ns; /* subtracted from calls */
};

static inline uint64_t stopwatch_delay(const struct stopwatch *watch)
{
    char text[96];
    ssize_t length = watch->fd < 0 ? 0 : pread(watch->fd, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *second;
    strtoull(text, &second, 10);
    return strtoull(second, NULL, 10);
}

/* Called by the thread that uses it. */
static inline void stopwatch_open(struct stopwatch *watch, const struct ticks *ticks)
{
    *watch = (struct stopwatch){.ticks = ticks, .fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)};
    watch->delay_ns = stopwatch_delay(watch);
    watch->stopped = ticks_now();
}

static inline void stopwatch_close(struct stopwatch *watch)
{
    if (watch->fd >= 0)
        close(watch->fd);
}

/* The start time for stopwatch_stop. */
static inline uint64_t stopwatch_start(struct stopwatch *watch)
{
    uint64_t now = ticks_now();
    if (__builtin_expect(now - watch->stopped < watch->ticks->pause, 1))
        return now;
    watch->delay_ns = stopwatch_delay(watch);
    return ticks_now();
}

/* Ticks since `began` that the call itself took. */
static inline uint64_t stopwatch_stop(struct stopwatch *watch, uint64_t began)
{
    const struct ticks *ticks = watch->ticks;
    uint64_t now = ticks_now();
    uint64_t took = now - began;
    watch->stopped = now;
    if (__builtin_expect(took >= ticks->pause, 0)) {
        uint64_t delay = stopwatch_delay(watch);
        uint64_t waited = (uint64_t)((double)(delay - watch->delay_ns) / ticks->ns);
        watch->taken_ns += delay - watch->delay_ns;
        watch->delay_ns = delay;
        watch->stopped = ticks_now();
        took -= waited < took ? waited : took;
    }
    return took > ticks->overhead ? took - ticks->overhead : 0;
}

#endif
