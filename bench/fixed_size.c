/* SPDX-License-Identifier: MIT */
/*
 * bench_fixed_size CYCLES SIZE SEED WS: blocks of one size, each replaced after WS cycles.
 * WS slots are filled, shuffled by SEED, and then replaced in turn; the first and last byte of
 * each new block are written. No branch depends on a random number, so this is the allocator's
 * fast path and little else, with a full working set at every moment.
 * With `--row` in front, WS blocks are allocated in a row and freed in the same order, CYCLES / WS times.
 */
#include "bench.h"

#include <string.h>

enum { CYCLES, SIZE, SEED, WS, PARAMS };

static struct bench_param params[PARAMS] = {
    [CYCLES] = {"CYCLES", 10000000, 1, UINT64_C(1) << 40, NULL},
    [SIZE] = {"SIZE", 256, 1, UINT64_C(1) << 30, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
    [WS] = {"WS", 256, 1, 1u << 28, NULL},
};

static void *new_block(size_t size)
{
    void *block = bench_malloc(size);
    bench_touch_ends(block, size);
    return block;
}

static void fill(void **slots, uint32_t working_set, size_t size, uint64_t random)
{
    for (uint32_t i = 0; i < working_set; i++)
        slots[i] = new_block(size);
    bench_shuffle(slots, working_set, &random);
}

static void replace(void **slots, uint64_t cycles, uint32_t working_set, size_t size)
{
    uint32_t at = 0;
    for (uint64_t i = 0; i < cycles; i++) {
        free(slots[at]);
        slots[at] = new_block(size);
        if (++at == working_set)
            at = 0;
    }
}

/* The number of blocks: whole rows. */
static uint64_t rows(void **slots, uint64_t cycles, uint32_t working_set, size_t size)
{
    uint64_t count = (cycles + working_set - 1) / working_set;
    for (uint64_t row = 0; row < count; row++) {
        for (uint32_t i = 0; i < working_set; i++)
            slots[i] = new_block(size);
        for (uint32_t i = 0; i < working_set; i++)
            free(slots[i]);
    }
    memset(slots, 0, working_set * sizeof *slots);
    return count * working_set;
}

int main(int argc, char **argv)
{
    bool in_rows = bench_take_flag(&argc, argv, "--row");
    bench_parse(argc, argv, params, PARAMS);
    uint32_t working_set = (uint32_t)params[WS].value;
    size_t size = (size_t)params[SIZE].value;
    void **slots = bench_slots(working_set);

    uint64_t cycles = params[CYCLES].value;

    uint64_t begin = bench_now_ns();
    if (in_rows) {
        cycles = rows(slots, cycles, working_set, size);
    } else {
        fill(slots, working_set, size, bench_seed(params[SEED].value, 0));
        replace(slots, cycles, working_set, size);
    }
    uint64_t end = bench_now_ns();

    bench_free_slots(slots, working_set);
    bench_report("fixed_size", cycles, end - begin, "size=%zu ws=%u order=%s", size, working_set,
                 in_rows ? "row" : "turn");
    return 0;
}
