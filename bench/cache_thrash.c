/* SPDX-License-Identifier: MIT */
/*
 * bench_cache_thrash KIND THREADS BLOCKS SIZE WRITES: false sharing caused by the allocator.
 * Each thread takes a block of SIZE bytes, writes it WRITES times and frees it, BLOCKS times.
 * KIND active: if the allocator gives neighbours in one cache line to different threads, they slow each other down.
 * KIND passive: first each thread frees a block that the main thread allocated next to those of the others; an
 * allocator that hands it back to the thread that freed it shares a line although each thread only uses blocks of its
 * own.
 * Without false sharing the time does not depend on THREADS, as long as there are cores.
 */
#include "bench.h"

enum { KIND, THREADS, BLOCKS, SIZE, WRITES, PARAMS };
enum { ACTIVE, PASSIVE };

static struct bench_param params[PARAMS] = {
    [KIND] = {"KIND", ACTIVE, 0, 0, "active|passive"},        [THREADS] = {"THREADS", 2, 1, BENCH_MAX_THREADS, NULL},
    [BLOCKS] = {"BLOCKS", 20000, 1, UINT64_C(1) << 40, NULL}, [SIZE] = {"SIZE", 8, 1, 1u << 20, NULL},
    [WRITES] = {"WRITES", 2000, 1, 1u << 30, NULL},
};

struct thread {
    _Alignas(BENCH_CACHE_LINE) void *first; /* from the main thread, or NULL */
};

/* Reads and writes each byte, like a program that works in its block. */
static void work_in(void *block, size_t size, uint64_t writes)
{
    volatile unsigned char *bytes = block;
    size_t at = 0;
    for (uint64_t i = 0; i < writes; i++) {
        bytes[at]++;
        if (++at == size)
            at = 0;
    }
}

static void run(void *arg)
{
    struct thread *t = arg;
    size_t size = (size_t)params[SIZE].value;
    free(t->first);
    for (uint64_t i = 0; i < params[BLOCKS].value; i++) {
        void *block = bench_malloc(size);
        bench_touch_ends(block, size);
        work_in(block, size, params[WRITES].value);
        free(block);
    }
}

int main(int argc, char **argv)
{
    static struct thread threads[BENCH_MAX_THREADS];
    bench_parse(argc, argv, params, PARAMS);
    unsigned count = (unsigned)params[THREADS].value;
    bool passive = params[KIND].value == PASSIVE;
    for (unsigned i = 0; passive && i < count; i++)
        threads[i].first = bench_malloc((size_t)params[SIZE].value);

    uint64_t ns = bench_run_threads(count, run, threads, sizeof threads[0]);
    bench_report(passive ? "cache_passive" : "cache_active", params[BLOCKS].value * params[WRITES].value * count, ns,
                 "threads=%u size=%llu", count, (unsigned long long)params[SIZE].value);
    return 0;
}
