/* SPDX-License-Identifier: MIT */
/*
 * bench_idle_process BLOCKS KIB IDLE_MS: BLOCKS blocks of KIB are taken, written and freed; then nothing at all.
 * Prints the resident set at the peak, when all is freed, and after IDLE_MS in which no call was made: an allocator
 * that returns memory only during calls has had no occasion.
 */
#include "bench.h"

enum { BLOCKS, KIB, IDLE_MS, PARAMS };

static struct bench_param params[PARAMS] = {
    [BLOCKS] = {"BLOCKS", 100, 1, 1u << 28, NULL},
    [KIB] = {"KIB", 4096, 1, 1u << 24, NULL},
    [IDLE_MS] = {"IDLE_MS", 4000, 0, 86400000, NULL},
};

static double rss_mib(void)
{
    return (double)bench_rss_kib() / 1024;
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint32_t count = (uint32_t)params[BLOCKS].value;
    size_t size = (size_t)params[KIB].value << 10;
    void **blocks = bench_slots(count);

    uint64_t begin = bench_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        blocks[i] = bench_malloc(size);
        bench_touch_pages(blocks[i], size);
    }
    double full = rss_mib();
    bench_free_slots(blocks, count);
    uint64_t ns = bench_now_ns() - begin;
    double freed = rss_mib();
    bench_wait_ms(params[IDLE_MS].value);
    double idle = rss_mib();
    bench_report("idle_process", count, ns, "kib=%llu full_mib=%.1f freed_mib=%.1f idle_mib=%.1f",
                 (unsigned long long)params[KIB].value, full, freed, idle);
    return 0;
}
