/* SPDX-License-Identifier: MIT */
/*
 * bench_grow_shrink BLOCKS ROUNDS SEED: a program whose memory grows and shrinks.
 * A round grows to BLOCKS blocks of mixed sizes, up to 32 KiB each, then frees 90 % of them, chosen at random. The
 * remaining blocks are scattered over all slabs, so the next round shows how well partly filled slabs are reused.
 * Reports pairs.
 */
#include "bench.h"

enum { BLOCKS, ROUNDS, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [BLOCKS] = {"BLOCKS", 100000, 10, 1u << 28, NULL},
    [ROUNDS] = {"ROUNDS", 20, 1, 1u << 30, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint32_t blocks = (uint32_t)params[BLOCKS].value;
    uint64_t random = bench_seed(params[SEED].value, 0);
    void **live = bench_map(blocks * sizeof *live);
    uint32_t count = 0;
    uint64_t pairs = 0;

    uint64_t begin = bench_now_ns();
    for (uint64_t round = 0; round < params[ROUNDS].value; round++) {
        while (count < blocks) {
            size_t size = bench_mixed_size(&random);
            live[count] = bench_malloc(size);
            bench_touch_ends(live[count++], size);
        }
        bench_shuffle(live, count, &random);
        while (count > blocks / 10) {
            free(live[--count]);
            pairs++;
        }
    }
    while (count > 0)
        free(live[--count]);
    uint64_t end = bench_now_ns();

    bench_unmap(live, blocks * sizeof *live);
    bench_report("grow_shrink", pairs, end - begin, "blocks=%u", blocks);
    return 0;
}
