/* SPDX-License-Identifier: MIT */
/*
 * bench_prodcons PAIRS BLOCKS RING SEED: one thread only allocates, another only frees.
 * Each of PAIRS producers sends BLOCKS blocks of 16 to 1039 bytes to its consumer through a queue
 * of RING blocks (ring.h). Memory must not grow: at most RING blocks of a pair are live.
 */
#include "bench.h"
#include "ring.h"

#include <sched.h>

enum { PAIRS, BLOCKS, RING, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [PAIRS] = {"PAIRS", 1, 1, BENCH_MAX_THREADS / 2, NULL},
    [BLOCKS] = {"BLOCKS", 5000000, 1, UINT64_C(1) << 40, NULL},
    [RING] = {"RING", 4096, 2 * RING_BATCH, 1u << 24, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

struct thread {
    _Alignas(BENCH_CACHE_LINE) struct ring *ring;
    uint64_t random;
    uint64_t waits;
    bool consumes;
};

static void produce(struct thread *t)
{
    for (uint64_t i = 0; i < params[BLOCKS].value; i++) {
        size_t size = 16 + bench_below(&t->random, 1024);
        void *block = bench_malloc(size);
        bench_touch_ends(block, size);
        while (!ring_put(t->ring, block)) {
            t->waits++;
            sched_yield();
        }
    }
    ring_flush(t->ring);
}

static void consume(struct thread *t)
{
    for (uint64_t i = 0; i < params[BLOCKS].value; i++) {
        void *block;
        while (!(block = ring_get(t->ring))) {
            t->waits++;
            sched_yield();
        }
        /* The receiver of a block reads it. */
        (void)*(volatile unsigned char *)block;
        free(block);
    }
}

static void run(void *arg)
{
    struct thread *t = arg;
    if (t->consumes)
        consume(t);
    else
        produce(t);
}

int main(int argc, char **argv)
{
    static struct thread threads[BENCH_MAX_THREADS];
    static struct ring rings[BENCH_MAX_THREADS / 2];
    bench_parse(argc, argv, params, PARAMS);
    unsigned pairs = (unsigned)params[PAIRS].value;
    uint64_t capacity = params[RING].value;
    if (capacity & (capacity - 1))
        bench_usage_error("RING %llu is no power of two; give 32, 64, 128 …", (unsigned long long)capacity);
    for (unsigned i = 0; i < 2 * pairs; i++) {
        threads[i].ring = &rings[i / 2];
        threads[i].random = bench_seed(params[SEED].value, i);
        threads[i].consumes = i % 2;
        if (i % 2 == 0)
            ring_init(&rings[i / 2], capacity);
    }
    uint64_t ns = bench_run_threads(2 * pairs, run, threads, sizeof threads[0]);

    uint64_t waits = 0;
    for (unsigned i = 0; i < 2 * pairs; i++)
        waits += threads[i].waits;
    for (unsigned i = 0; i < pairs; i++)
        ring_destroy(&rings[i]);
    bench_report("prodcons", params[BLOCKS].value * pairs, ns, "pairs=%u ring=%llu waits=%llu", pairs,
                 (unsigned long long)capacity, (unsigned long long)waits);
    return 0;
}
