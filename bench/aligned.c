/* SPDX-License-Identifier: MIT */
/*
 * bench_aligned ALIGNMENT SIZE BLOCKS ROUNDS: aligned_alloc beside malloc of the same size.
 * BLOCKS blocks are allocated in a row and freed in the same order, ROUNDS times, alternately with each function.
 * Prints the CPU time of one call: a row is timed as a whole, and no block is written.
 */
#include "bench.h"

enum { ALIGNMENT, SIZE, BLOCKS, ROUNDS, PARAMS };

static struct bench_param params[PARAMS] = {
    [ALIGNMENT] = {"ALIGNMENT", 64, sizeof(void *), 1u << 24, NULL},
    [SIZE] = {"SIZE", 256, 1, 1u << 30, NULL},
    [BLOCKS] = {"BLOCKS", 256, 1, 1u << 20, NULL},
    [ROUNDS] = {"ROUNDS", 4000, 1, UINT64_C(1) << 32, NULL},
};

static void *take_plain(size_t alignment, size_t size)
{
    (void)alignment;
    return malloc(size);
}

static void *take_aligned(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

struct cost {
    uint64_t take_ns;
    uint64_t free_ns;
};

static void row(void *(*take)(size_t, size_t), void **blocks, uint32_t count, struct cost *cost)
{
    size_t alignment = (size_t)params[ALIGNMENT].value, size = (size_t)params[SIZE].value;
    uint64_t begin = bench_cpu_ns();
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = take(alignment, size);
    uint64_t taken = bench_cpu_ns();
    for (uint32_t i = 0; i < count; i++)
        free(blocks[i]);
    cost->take_ns += taken - begin;
    cost->free_ns += bench_cpu_ns() - taken;
}

/* A block that is NULL or misaligned would make the figure invalid. */
static void check(size_t alignment, size_t size)
{
    void *block = aligned_alloc(alignment, size);
    if (!block || (uintptr_t)block % alignment != 0)
        bench_die("aligned_alloc(%zu, %zu) returned %p", alignment, size, block);
    free(block);
}

static void check_arguments(void)
{
    uint64_t alignment = params[ALIGNMENT].value;
    if (alignment & (alignment - 1))
        bench_usage_error("ALIGNMENT %llu is no power of two", (unsigned long long)alignment);
    if (params[SIZE].value % alignment != 0)
        bench_usage_error("SIZE %llu is no multiple of ALIGNMENT %llu", (unsigned long long)params[SIZE].value,
                          (unsigned long long)alignment);
    check((size_t)alignment, (size_t)params[SIZE].value);
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    check_arguments();
    uint32_t count = (uint32_t)params[BLOCKS].value;
    uint64_t rounds = params[ROUNDS].value;
    void **blocks = bench_map(count * sizeof *blocks);
    struct cost plain = {0, 0}, aligned = {0, 0};
    row(take_plain, blocks, count, &plain); /* touches the memory before either is timed */
    row(take_aligned, blocks, count, &aligned);
    plain = aligned = (struct cost){0, 0};

    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < rounds; i++) {
        row(take_plain, blocks, count, &plain);
        row(take_aligned, blocks, count, &aligned);
    }
    uint64_t ns = bench_now_ns() - begin;
    double calls = (double)count * (double)rounds;
    bench_report("aligned", 2 * count * rounds, ns,
                 "alignment=%llu size=%llu aligned_ns=%.2f aligned_free_ns=%.2f malloc_ns=%.2f malloc_free_ns=%.2f",
                 (unsigned long long)params[ALIGNMENT].value, (unsigned long long)params[SIZE].value,
                 (double)aligned.take_ns / calls, (double)aligned.free_ns / calls, (double)plain.take_ns / calls,
                 (double)plain.free_ns / calls);
    return 0;
}
