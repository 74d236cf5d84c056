/* SPDX-License-Identifier: MIT */
/*
 * bench_destroy MADE_BY BLOCKS ROUNDS SEED: what programs with large maps do at their end.
 * A thread, which then ends ("ended") or waits ("waiting"), or the main thread itself ("same") makes BLOCKS blocks of
 * 32 to 128 bytes. They are linked in an order that has nothing to do with their addresses, and the main thread frees
 * them in this order. Only that is timed; ROUNDS times.
 */
#include "bench.h"

enum { MADE_BY, BLOCKS, ROUNDS, SEED, PARAMS };
enum { ENDED, WAITING, SAME };

static const char *const makers[] = {"ended", "waiting", "same"};

static struct bench_param params[PARAMS] = {
    [MADE_BY] = {"MADE_BY", ENDED, 0, 0, "ended|waiting|same"},
    [BLOCKS] = {"BLOCKS", 1000000, 1, 1u << 28, NULL},
    [ROUNDS] = {"ROUNDS", 3, 1, 1u << 20, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

struct block {
    struct block *next;
};

static void **blocks;
static struct block *first;
static uint64_t random_state;
static pthread_barrier_t turn;

static void make(void)
{
    uint32_t count = (uint32_t)params[BLOCKS].value;
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = bench_malloc(32 + 16 * bench_below(&random_state, 7));
    bench_shuffle(blocks, count, &random_state);
    first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct block *block = blocks[i];
        block->next = first;
        first = block;
    }
}

static void *run_maker(void *arg)
{
    make();
    if (params[MADE_BY].value == WAITING) {
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    return arg;
}

static uint64_t destroy(void)
{
    uint64_t start = bench_cpu_ns();
    for (struct block *block = first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    return bench_cpu_ns() - start;
}

static uint64_t make_and_destroy(void)
{
    bool same = params[MADE_BY].value == SAME, waiting = params[MADE_BY].value == WAITING;
    pthread_t maker = 0;
    if (same)
        make();
    else
        maker = bench_start(run_maker, NULL);
    if (waiting)
        pthread_barrier_wait(&turn);
    else if (!same)
        pthread_join(maker, NULL);
    uint64_t ns = destroy();
    if (waiting) {
        pthread_barrier_wait(&turn);
        pthread_join(maker, NULL);
    }
    return ns;
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    size_t table_size = (size_t)params[BLOCKS].value * sizeof(void *);
    blocks = bench_map(table_size);
    random_state = bench_seed(params[SEED].value, 0);
    pthread_barrier_init(&turn, NULL, 2);
    uint64_t ns = 0;
    for (uint64_t round = 0; round < params[ROUNDS].value; round++)
        ns += make_and_destroy();
    bench_unmap(blocks, table_size);
    bench_report("destroy", params[BLOCKS].value * params[ROUNDS].value, ns, "made_by=%s",
                 makers[params[MADE_BY].value]);
    return 0;
}
