/* SPDX-License-Identifier: MIT */
/* Independent threads with blocks of pages, see blocks_mt.h. */
#include "blocks_mt.h"

#include "bench.h"

enum { THREADS, CYCLES, WS, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [THREADS] = {"THREADS", 2, 1, BENCH_MAX_THREADS, NULL},
    [CYCLES] = {"CYCLES", 100000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 256, 1, 1u << 24, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

struct thread {
    _Alignas(BENCH_CACHE_LINE) uint64_t random;
    uint64_t cycles;
    uint32_t working_set;
    uint32_t min;
    uint32_t max;
};

static void churn(struct thread *t, void **slots)
{
    uint64_t state = t->random;
    uint32_t range = t->max - t->min + 1;
    for (uint64_t i = 0; i < t->cycles; i++) {
        void **slot = &slots[bench_below(&state, t->working_set)];
        if (*slot) {
            free(*slot);
            *slot = NULL;
        } else {
            size_t size = t->min + bench_below(&state, range);
            *slot = bench_malloc(size);
            bench_touch_pages(*slot, size);
        }
    }
}

static void run(void *arg)
{
    struct thread *t = arg;
    void **slots = bench_slots(t->working_set);
    churn(t, slots);
    bench_free_slots(slots, t->working_set);
}

int blocks_mt_main(int argc, char **argv, const char *workload, uint32_t min, uint32_t max)
{
    static struct thread threads[BENCH_MAX_THREADS];
    bench_parse(argc, argv, params, PARAMS);
    unsigned count = (unsigned)params[THREADS].value;
    uint64_t cycles = params[CYCLES].value;
    for (unsigned i = 0; i < count; i++) {
        threads[i] = (struct thread){
            .random = bench_seed(params[SEED].value, i),
            .cycles = cycles,
            .working_set = (uint32_t)params[WS].value,
            .min = min,
            .max = max,
        };
    }
    uint64_t ns = bench_run_threads(count, run, threads, sizeof threads[0]);
    bench_report(workload, cycles * count, ns, "threads=%u ws=%llu", count, (unsigned long long)params[WS].value);
    return 0;
}
