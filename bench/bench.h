/* SPDX-License-Identifier: MIT */
/*
 * Shared by all benchmark programs: parameters, random numbers, clock, threads, the result line. The programs use only
 * the standard malloc API, so that any allocator can be preloaded. Nothing here allocates between the first and the
 * last measured operation: output goes through write(2), and the allocator is identified after the measurement.
 */
#ifndef HAKMEM_BENCH_H
#define HAKMEM_BENCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    BENCH_MAX_THREADS = 256,
    BENCH_PAGE = 4096, /* step of a touch; larger pages are touched more than once */
    BENCH_CACHE_LINE = 64,
};

#define BENCH_NOINLINE __attribute__((noinline))
#define BENCH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* One positional parameter: `value` holds the default until bench_parse has run. */
struct bench_param {
    const char *name;
    uint64_t value;
    uint64_t min;
    uint64_t max;
    const char *choices; /* "same|other": the value is the index of the word; NULL: a number */
};

/* Removes `flag` from the front of the arguments; true if it was there. */
bool bench_take_flag(int *argc, char **argv, const char *flag);

/* Reads the positional arguments; a bad one is a usage error. */
void bench_parse(int argc, char **argv, struct bench_param *params, size_t count);

/* Print one line on stderr and exit: a failure with exit code 1, a bad argument with 2. */
_Noreturn void bench_die(const char *fmt, ...) BENCH_PRINTF(1, 2);
_Noreturn void bench_usage_error(const char *fmt, ...) BENCH_PRINTF(1, 2);

/* A working set of n empty slots, from one calloc; frees it, with the blocks that are left in it. */
void **bench_slots(uint32_t n);
void bench_free_slots(void **slots, uint32_t n);

uint64_t bench_now_ns(void);

/* User and system time of the whole process, without the time that other programs take. */
uint64_t bench_cpu_ns(void);

void bench_wait_ms(uint64_t ms);

/* Resident set in KiB, and its maximum. */
uint64_t bench_rss_kib(void);
uint64_t bench_peak_kib(void);

/* A thread to be joined; without it the program ends. */
pthread_t bench_start(void *(*fn)(void *), void *context);

/*
 * Runs fn(contexts + i * stride) in `count` threads that start together.
 * Returns the nanoseconds from the common start until the last one has ended.
 */
uint64_t bench_run_threads(unsigned count, void (*fn)(void *), void *contexts, size_t stride);

/*
 * The result line: workload, operations, time, what `fmt` adds, and the allocator that served.
 * Call it last.
 */
void bench_report(const char *workload, uint64_t ops, uint64_t ns, const char *fmt, ...) BENCH_PRINTF(4, 5);

/* xorshift64: good enough to choose slots and sizes, and a few instructions only. */
static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Evenly in [0, n), without a division. */
static inline uint32_t bench_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(((bench_random(state) >> 32) * n) >> 32);
}

/* A seed for a thread's random numbers; never 0, which xorshift would never leave. */
static inline uint64_t bench_seed(uint64_t seed, uint64_t index)
{
    uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15u + (index + 1) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 31;
    return x ? x : 1;
}

/* Volatile, since a compiler may drop a store that only free() follows. */
static inline void bench_write(void *block, size_t offset, unsigned char value)
{
    ((volatile unsigned char *)block)[offset] = value;
}

static inline void bench_touch_ends(void *block, size_t size)
{
    bench_write(block, 0, (unsigned char)size);
    bench_write(block, size - 1, (unsigned char)size);
}

static inline void bench_touch_pages(void *block, size_t size)
{
    for (size_t offset = 0; offset < size; offset += BENCH_PAGE)
        bench_write(block, offset, (unsigned char)size);
}

/* A failure ends the program: a benchmark without its blocks measures nothing. */
static inline void *bench_malloc(size_t size)
{
    void *block = malloc(size);
    if (__builtin_expect(!block, 0))
        bench_die("malloc(%zu) returned NULL; use a smaller working set or raise the memory limit", size);
    return block;
}

static inline void bench_shuffle(void **blocks, uint32_t count, uint64_t *random)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = bench_below(random, i);
        void *block = blocks[i - 1];
        blocks[i - 1] = blocks[other];
        blocks[other] = block;
    }
}

/*
 * Sizes as in programs: half up to 128 bytes, most below 1 KiB, one in 128 up to 32 KiB.
 */
static inline size_t bench_mixed_size(uint64_t *random)
{
    uint32_t kind = bench_below(random, 128);
    if (kind < 64)
        return 8 + bench_below(random, 121);
    if (kind < 112)
        return 128 + bench_below(random, 897);
    if (kind < 127)
        return 1024 + bench_below(random, 7169);
    return 8192 + bench_below(random, 24577);
}

/* Memory of the benchmark itself, zeroed, outside of the allocator under test. */
void *bench_map(size_t size);
void bench_unmap(void *memory, size_t size);

#endif
