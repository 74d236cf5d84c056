/* SPDX-License-Identifier: MIT */
/*
 * bench_short_threads THREADS PAIRS AT_ONCE SEED: the cost of starting and ending a thread.
 * THREADS threads in all, AT_ONCE at a time, each with PAIRS malloc/free pairs of mixed sizes over a few slots. A
 * thread frees all its blocks before it ends.
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>

enum { THREADS, PAIRS, AT_ONCE, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [THREADS] = {"THREADS", 16000, 1, UINT64_C(1) << 32, NULL},
    [PAIRS] = {"PAIRS", 200, 1, 1u << 30, NULL},
    [AT_ONCE] = {"AT_ONCE", 4, 1, BENCH_MAX_THREADS, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { SLOTS = 32 };

static void *live(void *arg)
{
    uint64_t random = *(const uint64_t *)arg;
    void *slots[SLOTS] = {NULL};
    for (uint64_t i = 0; i < params[PAIRS].value; i++) {
        void **slot = &slots[bench_below(&random, SLOTS)];
        size_t size = bench_mixed_size(&random);
        free(*slot);
        *slot = bench_malloc(size);
        bench_touch_ends(*slot, size);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        free(slots[i]);
    return NULL;
}

/* Starts `count` threads and waits for all of them. */
static void run_group(unsigned count, uint64_t first)
{
    pthread_t threads[BENCH_MAX_THREADS];
    uint64_t seeds[BENCH_MAX_THREADS];
    for (unsigned i = 0; i < count; i++) {
        seeds[i] = bench_seed(params[SEED].value, first + i);
        int error = pthread_create(&threads[i], NULL, live, &seeds[i]);
        if (error)
            bench_die("thread %u of %u: %s; give a smaller AT_ONCE", i + 1, count, strerror(error));
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint64_t total = params[THREADS].value;
    uint64_t at_once = params[AT_ONCE].value;

    uint64_t begin = bench_now_ns();
    for (uint64_t done = 0; done < total; done += at_once)
        run_group((unsigned)(total - done < at_once ? total - done : at_once), done);
    uint64_t end = bench_now_ns();

    bench_report("short_threads", total * params[PAIRS].value, end - begin, "threads=%llu at_once=%llu",
                 (unsigned long long)total, (unsigned long long)at_once);
    return 0;
}
