/* SPDX-License-Identifier: MIT */
/*
 * bench_realloc_mix CYCLES WS SEED: buffers that change their size, as strings and vectors do.
 * A cycle picks a slot: an empty one gets a calloc; an occupied one is grown by half (3 in 8),
 * shrunk to half (1 in 8), appended to by 16 bytes (2 in 8) or freed (2 in 8).
 * Fresh and kept contents are checked at both ends; a lost byte ends the run.
 */
#include "bench.h"

enum { CYCLES, WS, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [CYCLES] = {"CYCLES", 5000000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 1000, 1, 1u << 26, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { MAX_SIZE = 64 * 1024 };

struct slot {
    unsigned char *bytes;
    size_t size;
};

static void fill(struct slot *slot, size_t size)
{
    slot->bytes = calloc(1, size);
    slot->size = size;
    if (!slot->bytes)
        bench_die("calloc(1, %zu) returned NULL; use a smaller WS", size);
    if (slot->bytes[0] || slot->bytes[size / 2] || slot->bytes[size - 1])
        bench_die("calloc(1, %zu) gave a block that is not zero", size);
    bench_touch_ends(slot->bytes, size);
    slot->bytes[0] = 1;
}

static void resize(struct slot *slot, size_t size)
{
    unsigned char *bytes = realloc(slot->bytes, size);
    if (!bytes)
        bench_die("realloc(%zu) returned NULL; use a smaller WS", size);
    if (bytes[0] != 1)
        bench_die("realloc(%zu) lost the contents of the block", size);
    bench_write(bytes, size - 1, 1);
    slot->bytes = bytes;
    slot->size = size;
}

static void empty(struct slot *slot)
{
    free(slot->bytes);
    slot->bytes = NULL;
}

static void step(struct slot *slot, uint64_t *random)
{
    if (!slot->bytes) {
        fill(slot, 1 + bench_below(random, 512));
        return;
    }
    uint32_t what = bench_below(random, 8);
    if (what < 2 || slot->size > MAX_SIZE)
        empty(slot);
    else if (what < 5)
        resize(slot, slot->size + slot->size / 2 + 1);
    else if (what < 7)
        resize(slot, slot->size + 16);
    else
        resize(slot, slot->size / 2 + 1);
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint32_t working_set = (uint32_t)params[WS].value;
    uint64_t random = bench_seed(params[SEED].value, 0);
    struct slot *slots = bench_map(working_set * sizeof *slots);

    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < params[CYCLES].value; i++)
        step(&slots[bench_below(&random, working_set)], &random);
    for (uint32_t i = 0; i < working_set; i++)
        empty(&slots[i]);
    uint64_t end = bench_now_ns();

    bench_report("realloc_mix", params[CYCLES].value, end - begin, "ws=%u", working_set);
    return 0;
}
