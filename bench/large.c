/* SPDX-License-Identifier: MIT */
/*
 * bench_large CYCLES WS SEED: blocks of 64 KiB to 4 MiB in random order, one byte of each page
 * touched. `bench_large --grow ROUNDS`: one block grown by realloc from 64 KiB to 256 MiB in steps
 * of an eighth, touching what was added, then freed; ROUNDS times. `bench_large --replace OPS BUFFERS
 * MIN_KIB MAX_KIB SEED`: buffers of these sizes, one of which is replaced at a time by one that is filled before the
 * old one is freed. `bench_large --turns ROUNDS VECTORS STEP PERCENT MAX_KIB`: vectors that grow in turn, each time by
 * STEP bytes and so many percent of what they have, then are freed. Reports pairs or reallocs.
 */
#include "bench.h"

#include <string.h>

enum { CYCLES, WS, SEED, CHURN_PARAMS };

static struct bench_param churn_params[CHURN_PARAMS] = {
    [CYCLES] = {"CYCLES", 4000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 64, 1, 1u << 20, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

static struct bench_param grow_params[] = {
    {"ROUNDS", 4, 1, 1u << 30, NULL},
};

enum { OPS, BUFFERS, MIN_KIB, MAX_KIB, REPLACE_SEED, REPLACE_PARAMS };

static struct bench_param replace_params[REPLACE_PARAMS] = {
    [OPS] = {"OPS", 1000, 1, UINT64_C(1) << 40, NULL},  [BUFFERS] = {"BUFFERS", 20, 1, 1u << 20, NULL},
    [MIN_KIB] = {"MIN_KIB", 5120, 1, 1u << 30, NULL},   [MAX_KIB] = {"MAX_KIB", 25600, 1, 1u << 30, NULL},
    [REPLACE_SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { TURNS_ROUNDS, VECTORS, STEP, PERCENT, TURNS_MAX, TURNS_PARAMS };

static struct bench_param turns_params[TURNS_PARAMS] = {
    [TURNS_ROUNDS] = {"ROUNDS", 1, 1, UINT64_C(1) << 40, NULL},
    [VECTORS] = {"VECTORS", 32, 1, 1u << 20, NULL},
    [STEP] = {"STEP", 4096, 1, 1u << 30, NULL},
    [PERCENT] = {"PERCENT", 0, 0, 10000, NULL},
    [TURNS_MAX] = {"MAX_KIB", 1024, 1, 1u << 24, NULL},
};

enum { MIN_SIZE = 64 * 1024, MAX_SIZE = 4 * 1024 * 1024, GROWN_SIZE = 256 * 1024 * 1024 };

static void churn(void **slots, uint64_t cycles, uint32_t working_set, uint64_t random)
{
    for (uint64_t i = 0; i < cycles; i++) {
        void **slot = &slots[bench_below(&random, working_set)];
        size_t size = MIN_SIZE + bench_below(&random, MAX_SIZE - MIN_SIZE + 1);
        free(*slot);
        *slot = bench_malloc(size);
        bench_touch_pages(*slot, size);
    }
    for (uint32_t i = 0; i < working_set; i++)
        free(slots[i]);
}

static int run_churn(int argc, char **argv)
{
    bench_parse(argc, argv, churn_params, CHURN_PARAMS);
    uint64_t cycles = churn_params[CYCLES].value;
    uint32_t working_set = (uint32_t)churn_params[WS].value;
    void **slots = bench_slots(working_set);

    uint64_t begin = bench_now_ns();
    churn(slots, cycles, working_set, bench_seed(churn_params[SEED].value, 0));
    uint64_t end = bench_now_ns();
    free(slots);
    bench_report("large", cycles, end - begin, "ws=%u", working_set);
    return 0;
}

/* One block from MIN_SIZE to GROWN_SIZE; returns the number of reallocs. */
static uint64_t grow_once(void)
{
    uint64_t steps = 0;
    size_t size = MIN_SIZE;
    unsigned char *block = bench_malloc(size);
    memset(block, 1, size);
    while (size < GROWN_SIZE) {
        size_t larger = size + size / 8;
        unsigned char *moved = realloc(block, larger);
        if (!moved)
            bench_die("realloc(%zu) returned NULL; raise the memory limit", larger);
        if (moved[0] != 1 || moved[size - 1] != 1)
            bench_die("realloc(%zu) lost the contents of the block", larger);
        memset(moved + size, 1, larger - size);
        block = moved;
        size = larger;
        steps++;
    }
    free(block);
    return steps;
}

static int run_grow(int argc, char **argv)
{
    bench_parse(argc, argv, grow_params, 1);
    uint64_t steps = 0;
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < grow_params[0].value; i++)
        steps += grow_once();
    uint64_t end = bench_now_ns();
    bench_report("large_grow", steps, end - begin, "rounds=%llu", (unsigned long long)grow_params[0].value);
    return 0;
}

static int run_replace(int argc, char **argv)
{
    bench_parse(argc, argv, replace_params, REPLACE_PARAMS);
    uint64_t ops = replace_params[OPS].value, random = bench_seed(replace_params[REPLACE_SEED].value, 0);
    uint32_t buffers = (uint32_t)replace_params[BUFFERS].value;
    size_t min = replace_params[MIN_KIB].value * 1024, max = replace_params[MAX_KIB].value * 1024;
    if (max < min)
        bench_usage_error("MAX_KIB is less than MIN_KIB");
    void **slots = bench_slots(buffers);
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < ops; i++) {
        void **slot = &slots[bench_below(&random, buffers)];
        size_t size = min + bench_below(&random, (uint32_t)(max - min + 1));
        void *block = bench_malloc(size);
        memset(block, 0, size);
        free(*slot);
        *slot = block;
    }
    uint64_t end = bench_now_ns();
    bench_free_slots(slots, buffers);
    bench_report("large_replace", ops, end - begin, "buffers=%u", buffers);
    return 0;
}

/* Returns the number of reallocs. */
static uint64_t grow_in_turn(unsigned char **vectors, uint32_t count, size_t step, size_t percent, size_t max)
{
    uint64_t steps = 0;
    for (size_t size = 0, next; (next = size + step + size * percent / 100) <= max; size = next)
        for (uint32_t i = 0; i < count; i++, steps++) {
            unsigned char *moved = realloc(vectors[i], next);
            if (!moved)
                bench_die("realloc(%zu) returned NULL; raise the memory limit", next);
            memset(moved + size, 1, next - size);
            vectors[i] = moved;
        }
    for (uint32_t i = 0; i < count; i++) {
        free(vectors[i]);
        vectors[i] = NULL;
    }
    return steps;
}

static int run_turns(int argc, char **argv)
{
    bench_parse(argc, argv, turns_params, TURNS_PARAMS);
    uint64_t steps = 0, rounds = turns_params[TURNS_ROUNDS].value;
    uint32_t count = (uint32_t)turns_params[VECTORS].value;
    void **vectors = bench_slots(count);
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < rounds; i++)
        steps += grow_in_turn((unsigned char **)vectors, count, turns_params[STEP].value, turns_params[PERCENT].value,
                              turns_params[TURNS_MAX].value * 1024);
    uint64_t end = bench_now_ns();
    free(vectors);
    bench_report("large_turns", steps, end - begin, "vectors=%u", count);
    return 0;
}

int main(int argc, char **argv)
{
    if (bench_take_flag(&argc, argv, "--turns"))
        return run_turns(argc, argv);
    if (bench_take_flag(&argc, argv, "--replace"))
        return run_replace(argc, argv);
    if (bench_take_flag(&argc, argv, "--grow"))
        return run_grow(argc, argv);
    return run_churn(argc, argv);
}
