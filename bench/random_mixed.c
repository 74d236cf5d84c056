/* SPDX-License-Identifier: MIT */
/*
 * bench_random_mixed CYCLES WS SEED: blocks of 16 to 1039 bytes in random order.
 * A cycle picks one of WS slots: an occupied one is freed, an empty one gets a block whose first and last byte are
 * written. One random number gives both slot and size, as in the figures with which this workload is compared. Its own
 * memory is one calloc.
 */
#include "bench.h"

enum { CYCLES, WS, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [CYCLES] = {"CYCLES", 10000000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 8192, 1, 1u << 28, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

static inline uint32_t xorshift32(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static void churn(void **slots, uint64_t cycles, uint32_t working_set, uint32_t state)
{
    for (uint64_t i = 0; i < cycles; i++) {
        uint32_t r = xorshift32(&state);
        void **slot = &slots[r % working_set];
        if (*slot) {
            free(*slot);
            *slot = NULL;
        } else {
            size_t size = 16 + (r & 0x3FF);
            *slot = bench_malloc(size);
            bench_touch_ends(*slot, size);
        }
    }
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint32_t working_set = (uint32_t)params[WS].value;
    void **slots = bench_slots(working_set);

    uint64_t begin = bench_now_ns();
    churn(slots, params[CYCLES].value, working_set, (uint32_t)params[SEED].value);
    uint64_t end = bench_now_ns();

    bench_free_slots(slots, working_set);
    bench_report("random_mixed", params[CYCLES].value, end - begin, "ws=%u", working_set);
    return 0;
}
