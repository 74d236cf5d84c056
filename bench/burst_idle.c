/* SPDX-License-Identifier: MIT */
/*
 * bench_burst_idle KIND MIB FREED_BY IDLE_MS SEED: the memory of a process after its peak. Allocates MIB of blocks
 * (small 16-1039 B, pool 8-52 KiB, large 64 KiB-4 MiB, mixed all of them), writes each page, frees all by the same or
 * another thread, does nothing for IDLE_MS, then makes 1000 small pairs. Prints the resident set before, at the peak,
 * after the frees, after the idle time and after the pairs. The time covers only the burst and the frees.
 */
#include "bench.h"

enum { KIND, MIB, FREED_BY, IDLE_MS, SEED, PARAMS };
enum { SMALL, POOL, LARGE, MIXED };
enum { SAME, OTHER };

static const char *const kind_names[] = {"small", "pool", "large", "mixed"};
static const char *const freed_by_names[] = {"same", "other"};

static struct bench_param params[PARAMS] = {
    [KIND] = {"KIND", SMALL, 0, 0, "small|pool|large|mixed"},
    [MIB] = {"MIB", 1024, 1, 1u << 20, NULL},
    [FREED_BY] = {"FREED_BY", SAME, 0, 0, "same|other"},
    [IDLE_MS] = {"IDLE_MS", 2000, 0, 86400000, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { PAIRS = 1000 };

/* The burst is a list through the blocks themselves, so the benchmark adds no memory of its own. */
struct block {
    struct block *next;
};

struct burst {
    struct block *blocks;
    uint64_t count;
};

static size_t choose_size(uint64_t *random, uint64_t kind)
{
    if (kind == MIXED) {
        /* About a third of the bytes each. */
        uint32_t which = bench_below(random, 4096);
        kind = which == 0 ? LARGE : which < 64 ? POOL : SMALL;
    }
    if (kind == SMALL)
        return 16 + bench_below(random, 1024);
    if (kind == POOL)
        return 8 * 1024 + bench_below(random, 44 * 1024 + 1);
    return 64 * 1024 + bench_below(random, 4032 * 1024 + 1);
}

static void take(struct burst *burst)
{
    uint64_t random = bench_seed(params[SEED].value, 0);
    uint64_t wanted = params[MIB].value << 20;
    for (uint64_t taken = 0; taken < wanted;) {
        size_t size = choose_size(&random, params[KIND].value);
        struct block *block = bench_malloc(size);
        bench_touch_pages(block, size);
        bench_touch_ends(block, size);
        block->next = burst->blocks;
        burst->blocks = block;
        burst->count++;
        taken += size;
    }
}

static void *release(void *arg)
{
    struct burst *burst = arg;
    while (burst->blocks) {
        struct block *next = burst->blocks->next;
        free(burst->blocks);
        burst->blocks = next;
    }
    return NULL;
}

static void small_pairs(void)
{
    for (int i = 0; i < PAIRS; i++) {
        void *block = bench_malloc(64);
        bench_touch_ends(block, 64);
        free(block);
    }
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    struct burst burst = {NULL, 0};
    free(bench_malloc(64)); /* the allocator's own start belongs to "before" */
    uint64_t before = bench_rss_kib();

    uint64_t begin = bench_now_ns();
    take(&burst);
    uint64_t full = bench_rss_kib();
    if (params[FREED_BY].value == OTHER)
        pthread_join(bench_start(release, &burst), NULL);
    else
        release(&burst);
    uint64_t ns = bench_now_ns() - begin;

    uint64_t freed = bench_rss_kib();
    bench_wait_ms(params[IDLE_MS].value);
    uint64_t idled = bench_rss_kib();
    small_pairs();
    bench_report("burst_idle", burst.count, ns,
                 "kind=%s freed_by=%s mib=%llu rss_before_kib=%llu rss_full_kib=%llu "
                 "rss_freed_kib=%llu rss_idle_kib=%llu rss_after_kib=%llu",
                 kind_names[params[KIND].value], freed_by_names[params[FREED_BY].value],
                 (unsigned long long)params[MIB].value, (unsigned long long)before, (unsigned long long)full,
                 (unsigned long long)freed, (unsigned long long)idled, (unsigned long long)bench_rss_kib());
    return 0;
}
