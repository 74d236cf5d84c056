/* SPDX-License-Identifier: MIT */
/*
 * bench_sweep STRETCHES SIZE BEATS SEED: does the cost of an allocator's housekeeping grow with the heap? The main
 * thread makes a few calls in each of BEATS beats of 10 ms, and its share of one CPU is measured. Then another thread
 * fills STRETCHES stretches of 64 KiB with blocks of SIZE, frees all but one block of each, and ends: memory full of
 * holes, without an owner. The main thread continues, and also frees a few of those blocks in each beat. Prints its
 * share of a CPU before and after.
 */
#include "bench.h"

enum { STRETCHES, SIZE, BEATS, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [STRETCHES] = {"STRETCHES", 40000, 1, 1u << 20, NULL},
    [SIZE] = {"SIZE", 1024, 16, 32768, NULL},
    [BEATS] = {"BEATS", 300, 1, 1u << 20, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { STRETCH = 64 * 1024, BEAT_MS = 10, BEAT_BLOCKS = 1000, BEAT_KEPT = 16, WORK_SIZES = 2048 };

static void **kept; /* one block of each stretch */

/* The blocks of a stretch that will be freed, linked through their first words. */
static void **fill_stretch(uint64_t stretch, void **list)
{
    size_t size = (size_t)params[SIZE].value;
    kept[stretch] = bench_malloc(size);
    for (unsigned i = 1; i < STRETCH / size; i++) {
        void **block = bench_malloc(size);
        *block = list;
        list = block;
    }
    return list;
}

static void *leave_holes(void *arg)
{
    (void)arg;
    void **list = NULL;
    for (uint64_t i = 0; i < params[STRETCHES].value; i++)
        list = fill_stretch(i, list);
    while (list) {
        void **next = *list;
        free(list);
        list = next;
    }
    return NULL;
}

static void work(uint64_t *random)
{
    void *blocks[BEAT_BLOCKS];
    for (unsigned i = 0; i < BEAT_BLOCKS; i++) {
        size_t size = params[SIZE].value * 2 + bench_below(random, WORK_SIZES);
        blocks[i] = bench_malloc(size);
        bench_touch_ends(blocks[i], size);
    }
    for (unsigned i = 0; i < BEAT_BLOCKS; i++)
        free(blocks[i]);
}

static void free_some(uint64_t from)
{
    for (uint64_t i = from; i < from + BEAT_KEPT && i < params[STRETCHES].value; i++) {
        free(kept[i]);
        kept[i] = NULL;
    }
}

/* Per cent of one CPU, over all beats. */
static double share(uint64_t *random, bool frees_kept)
{
    uint64_t began = bench_now_ns(), cpu = bench_cpu_ns();
    for (uint64_t i = 0; i < params[BEATS].value; i++) {
        work(random);
        if (frees_kept)
            free_some(i * BEAT_KEPT);
        bench_wait_ms(BEAT_MS);
    }
    return 100 * (double)(bench_cpu_ns() - cpu) / (double)(bench_now_ns() - began);
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint64_t random = bench_seed(params[SEED].value, 0), stretches = params[STRETCHES].value;
    kept = bench_map(stretches * sizeof *kept);

    uint64_t begin = bench_now_ns();
    double before = share(&random, false);
    pthread_join(bench_start(leave_holes, NULL), NULL);
    double after = share(&random, true);
    uint64_t ns = bench_now_ns() - begin;
    double held = (double)bench_rss_kib() / 1024;
    for (uint64_t i = 0; i < stretches; i++)
        free(kept[i]);
    bench_report("sweep", 2 * params[BEATS].value * BEAT_BLOCKS, ns,
                 "stretches=%llu before_percent=%.2f after_percent=%.2f held_mib=%.1f", (unsigned long long)stretches,
                 before, after, held);
    return 0;
}
