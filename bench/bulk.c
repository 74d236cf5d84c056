/* SPDX-License-Identifier: MIT */
/*
 * bench_bulk THREADS BLOCKS ROUNDS ORDER SEED: allocate a lot, then free it all.
 * Each thread allocates BLOCKS blocks of mixed sizes and frees all of them itself, in the order of allocation, in
 * reverse or at random; ROUNDS times. Thread caches are too small for this, so it measures refill and drain.
 */
#include "bench.h"

enum { THREADS, BLOCKS, ROUNDS, ORDER, SEED, PARAMS };
enum { IN_ORDER, IN_REVERSE, AT_RANDOM };

static const char *const order_names[] = {"order", "reverse", "random"};

static struct bench_param params[PARAMS] = {
    [THREADS] = {"THREADS", 1, 1, BENCH_MAX_THREADS, NULL},
    [BLOCKS] = {"BLOCKS", 20000, 1, 1u << 28, NULL},
    [ROUNDS] = {"ROUNDS", 50, 1, 1u << 30, NULL},
    [ORDER] = {"ORDER", IN_ORDER, 0, 0, "order|reverse|random"},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

struct thread {
    _Alignas(BENCH_CACHE_LINE) uint64_t random;
    void **blocks;
};

static void free_all(struct thread *t, uint32_t count)
{
    if (params[ORDER].value == IN_REVERSE) {
        for (uint32_t i = count; i > 0; i--)
            free(t->blocks[i - 1]);
        return;
    }
    if (params[ORDER].value == AT_RANDOM)
        bench_shuffle(t->blocks, count, &t->random);
    for (uint32_t i = 0; i < count; i++)
        free(t->blocks[i]);
}

static void run(void *arg)
{
    struct thread *t = arg;
    uint32_t count = (uint32_t)params[BLOCKS].value;
    for (uint64_t round = 0; round < params[ROUNDS].value; round++) {
        for (uint32_t i = 0; i < count; i++) {
            size_t size = bench_mixed_size(&t->random);
            t->blocks[i] = bench_malloc(size);
            bench_touch_ends(t->blocks[i], size);
        }
        free_all(t, count);
    }
}

int main(int argc, char **argv)
{
    static struct thread threads[BENCH_MAX_THREADS];
    bench_parse(argc, argv, params, PARAMS);
    unsigned count = (unsigned)params[THREADS].value;
    size_t table_size = (size_t)params[BLOCKS].value * sizeof(void *);
    for (unsigned i = 0; i < count; i++) {
        threads[i].random = bench_seed(params[SEED].value, i);
        threads[i].blocks = bench_map(table_size);
    }
    uint64_t ns = bench_run_threads(count, run, threads, sizeof threads[0]);
    for (unsigned i = 0; i < count; i++)
        bench_unmap(threads[i].blocks, table_size);
    bench_report("bulk", params[BLOCKS].value * params[ROUNDS].value * count, ns, "threads=%u order=%s", count,
                 order_names[params[ORDER].value]);
    return 0;
}
