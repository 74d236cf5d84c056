/* SPDX-License-Identifier: MIT */
/*
 * bench_pair SIZE COUNT WS: COUNT malloc/free pairs, to be run under callgrind (count_pair.py).
 * SIZE 0 is random_mixed: sizes 16 to 1039, slots at random. Else one size, slots in turn.
 * `bench_pair --bare` runs the same loop over two empty functions; the difference of both is
 * what the allocator itself executes. The loop writes to no block, as the bare one has none.
 */
#include "bench.h"

#include "empty_calls.h"

enum { SIZE, COUNT, WS, PARAMS };

static struct bench_param params[PARAMS] = {
    [SIZE] = {"SIZE", 64, 0, UINT64_C(1) << 30, NULL},
    [COUNT] = {"COUNT", 100000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 256, 1, 1u << 24, NULL},
};

/*
 * The loops exist once for each pair of functions, with direct calls: a call through a pointer
 * would not use the PLT. They are identical but for the two names.
 */
#define DEFINE_LOOPS(prefix, allocate, release)                                                                        \
    BENCH_NOINLINE static void prefix##_fixed(void **slots, uint64_t count, uint32_t working_set, size_t size)         \
    {                                                                                                                  \
        uint32_t at = 0;                                                                                               \
        for (uint64_t i = 0; i < count; i++) {                                                                         \
            release(slots[at]);                                                                                        \
            slots[at] = allocate(size);                                                                                \
            if (++at == working_set)                                                                                   \
                at = 0;                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    BENCH_NOINLINE static uint64_t prefix##_mixed(void **slots, uint64_t count, uint32_t working_set, uint64_t random) \
    {                                                                                                                  \
        uint64_t pairs = 0;                                                                                            \
        while (pairs < count) {                                                                                        \
            void **slot = &slots[bench_below(&random, working_set)];                                                   \
            if (*slot) {                                                                                               \
                release(*slot);                                                                                        \
                *slot = NULL;                                                                                          \
                pairs++;                                                                                               \
            } else {                                                                                                   \
                *slot = allocate(16 + (random & 0x3FF));                                                               \
            }                                                                                                          \
        }                                                                                                              \
        return random;                                                                                                 \
    }                                                                                                                  \
    static void prefix##_run(void **slots, uint64_t count, uint32_t working_set, size_t size)                          \
    {                                                                                                                  \
        if (size > 0) {                                                                                                \
            for (uint32_t i = 0; i < working_set; i++)                                                                 \
                slots[i] = allocate(size);                                                                             \
            prefix##_fixed(slots, count, working_set, size);                                                           \
        } else {                                                                                                       \
            prefix##_mixed(slots, count, working_set, 42);                                                             \
        }                                                                                                              \
        for (uint32_t i = 0; i < working_set; i++)                                                                     \
            release(slots[i]);                                                                                         \
    }

DEFINE_LOOPS(real, malloc, free)
DEFINE_LOOPS(bare, empty_malloc, empty_free)

int main(int argc, char **argv)
{
    bool bare = bench_take_flag(&argc, argv, "--bare");
    bench_parse(argc, argv, params, PARAMS);
    uint32_t working_set = (uint32_t)params[WS].value;
    uint64_t count = params[COUNT].value;
    size_t size = (size_t)params[SIZE].value;
    void **slots = bench_map(working_set * sizeof *slots);

    uint64_t begin = bench_now_ns();
    if (bare)
        bare_run(slots, count, working_set, size);
    else
        real_run(slots, count, working_set, size);
    uint64_t end = bench_now_ns();

    bench_report(bare ? "pair_bare" : "pair", count, end - begin, "size=%zu ws=%u", size, working_set);
    return 0;
}
