/* SPDX-License-Identifier: MIT */
/*
 * bench_pinned MIB SIZE EVERY ROUNDS: blocks of one thread that another has freed, while their owner uses other sizes.
 * Thread A allocates MIB of blocks of SIZE and frees each EVERYth itself; B frees all others. A then uses blocks of
 * other sizes, ROUNDS times in 10 ms. Then B allocates MIB of SIZE. Prints the resident set after each of the three,
 * and its peak: at best it is that of MIB once.
 */
#include "bench.h"

enum { MIB, SIZE, EVERY, ROUNDS, PARAMS };

static struct bench_param params[PARAMS] = {
    [MIB] = {"MIB", 350, 1, 1u << 20, NULL},
    [SIZE] = {"SIZE", 256, 16, 1u << 20, NULL},
    [EVERY] = {"EVERY", 50, 1, 1u << 20, NULL},
    [ROUNDS] = {"ROUNDS", 200, 0, 1u << 20, NULL},
};

enum { ROUND_MS = 10, ROUND_BLOCKS = 100 };

static void **blocks;
static uint32_t count;
static double freed_mib, held_mib, again_mib;
static pthread_barrier_t turn; /* A and B work alternately */

static double rss_mib(void)
{
    return (double)bench_rss_kib() / 1024;
}

static void take_all(void)
{
    size_t size = (size_t)params[SIZE].value;
    for (uint32_t i = 0; i < count; i++) {
        blocks[i] = bench_malloc(size);
        bench_touch_pages(blocks[i], size);
        bench_touch_ends(blocks[i], size);
    }
}

static bool own(uint32_t i)
{
    return i % params[EVERY].value == 0;
}

static void free_share(bool owned)
{
    for (uint32_t i = 0; i < count; i++)
        if (own(i) == owned)
            free(blocks[i]);
}

/* Sizes from twice to nine times SIZE, so that no allocator has them in SIZE's class. */
static void go_on(void)
{
    void *others[ROUND_BLOCKS];
    for (uint64_t round = 0; round < params[ROUNDS].value; round++) {
        for (unsigned i = 0; i < ROUND_BLOCKS; i++)
            others[i] = bench_malloc((size_t)params[SIZE].value * (2 + i % 8));
        for (unsigned i = 0; i < ROUND_BLOCKS; i++)
            free(others[i]);
        bench_wait_ms(ROUND_MS);
    }
}

static void *run_other(void *arg)
{
    (void)arg;
    pthread_barrier_wait(&turn);
    free_share(false);
    freed_mib = rss_mib();
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    take_all();
    again_mib = rss_mib();
    pthread_barrier_wait(&turn);
    return NULL;
}

static void *run_owner(void *arg)
{
    (void)arg;
    take_all();
    free_share(true);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    go_on();
    held_mib = rss_mib();
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn); /* it continues: when it ended, it would give up its slabs */
    return NULL;
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    count = (uint32_t)((params[MIB].value << 20) / params[SIZE].value);
    if (count == 0)
        bench_usage_error("SIZE %llu is above MIB; give a larger MIB", (unsigned long long)params[SIZE].value);
    blocks = bench_map(count * sizeof *blocks);
    pthread_barrier_init(&turn, NULL, 2);
    uint64_t begin = bench_now_ns();
    pthread_t owner = bench_start(run_owner, NULL), other = bench_start(run_other, NULL);
    pthread_join(owner, NULL);
    pthread_join(other, NULL);
    uint64_t ns = bench_now_ns() - begin;
    bench_report("pinned", count, ns, "size=%llu freed_mib=%.1f held_mib=%.1f again_mib=%.1f peak_mib=%.1f",
                 (unsigned long long)params[SIZE].value, freed_mib, held_mib, again_mib,
                 (double)bench_peak_kib() / 1024);
    return 0;
}
