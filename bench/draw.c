/* SPDX-License-Identifier: MIT */
/*
 * bench_draw SIZES MAX THREADS OPS LIVE LIFE ORDER PHASES EXITS REMOTE REALLOC ALIGNED ZEROED SEED: one program of many
 * that could be. draws.py chooses the arguments at random.
 *
 * Each of THREADS threads has up to LIVE blocks of SIZES: calls (as real programs call: mostly below 128 bytes),
 * doublings (up to MAX, each equally likely), powers (of two, up to MAX), few (four sizes up to MAX), one (MAX). In
 * each of OPS steps it replaces a block, which LIFE chooses: random; queue: the oldest; young: nine of ten times one of
 * the few youngest; stack: it takes and frees the last ones, in runs. Of the replaced blocks REMOTE percent are freed
 * by another thread, and REALLOC percent grow or shrink instead. Of the new ones ALIGNED percent are aligned to 32 to
 * 4096 bytes, and ZEROED percent come from calloc. OPS are divided into PHASES. After each, all blocks are freed in
 * ORDER (forwards, backwards, shuffled); or they stay (none), and with EXITS another thread goes on with them.
 */
#include "bench.h"
#include "mailboxes.h"

enum { SIZES, MAX, THREADS, OPS, LIVE, LIFE, ORDER, PHASES, EXITS, REMOTE, REALLOC, ALIGNED, ZEROED, SEED, PARAMS };
enum { CALLS, DOUBLINGS, POWERS, FEW, ONE };
enum { RANDOM, QUEUE, YOUNG, STACK };
enum { NONE, FORWARDS, BACKWARDS, SHUFFLED };

static struct bench_param params[PARAMS] = {
    [SIZES] = {"SIZES", CALLS, 0, 0, "calls|doublings|powers|few|one"},
    [MAX] = {"MAX", 1024, 16, 1u << 26, NULL},
    [THREADS] = {"THREADS", 2, 1, 64, NULL},
    [OPS] = {"OPS", 1000000, 1, UINT64_C(1) << 40, NULL},
    [LIVE] = {"LIVE", 1000, 1, 1u << 24, NULL},
    [LIFE] = {"LIFE", RANDOM, 0, 0, "random|queue|young|stack"},
    [ORDER] = {"ORDER", NONE, 0, 0, "none|forwards|backwards|shuffled"},
    [PHASES] = {"PHASES", 1, 1, 1u << 16, NULL},
    [EXITS] = {"EXITS", 0, 0, 0, "no|exits"},
    [REMOTE] = {"REMOTE", 0, 0, 100, NULL},
    [REALLOC] = {"REALLOC", 0, 0, 100, NULL},
    [ALIGNED] = {"ALIGNED", 0, 0, 100, NULL},
    [ZEROED] = {"ZEROED", 0, 0, 100, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { SMALLEST = 16, MAILBOX_BLOCKS = 256, YOUNG_SHARE = 16, FEW_SIZES = 4 };

struct thread {
    _Alignas(BENCH_CACHE_LINE) unsigned index;
    unsigned inbox; /* the mailbox to check next */
    uint64_t random, step;
    uint32_t depth; /* of a stack; */
    bool frees;     /* and whether it shrinks */
    uint32_t *sizes;
    void **slots;
};

static struct mailboxes boxes;
static pthread_barrier_t all_sent;
static uint32_t few[FEW_SIZES];

static uint64_t value(unsigned param)
{
    return params[param].value;
}

static bool happens(struct thread *t, unsigned param)
{
    return value(param) && bench_below(&t->random, 100) < value(param);
}

/* --- sizes --------------------------------------------------------------------------------------------- */

static uint32_t doubling(uint64_t *random)
{
    uint32_t most = (uint32_t)value(MAX), base = SMALLEST << bench_below(random, 28u - (unsigned)__builtin_clz(most));
    uint32_t size = base + bench_below(random, base);
    return size < most ? size : most;
}

/* Percent of calls up to a size, counted in programs. */
static uint32_t called(uint64_t *random)
{
    static const struct {
        uint32_t percent, most;
    } row[] = {{6, 8}, {16, 16}, {37, 32}, {58, 64}, {72, 128}, {84, 512}, {96, 8192}, {100, 65536}};
    uint32_t i = 0, percent = bench_below(random, 100);
    while (percent >= row[i].percent)
        i++;
    uint32_t least = i ? row[i - 1].most : 0;
    return least + 1 + bench_below(random, row[i].most - least);
}

static uint32_t choose_size(uint64_t *random)
{
    switch (value(SIZES)) {
    case CALLS:
        return called(random);
    case DOUBLINGS:
        return doubling(random);
    case POWERS:
        return 1u << (31 - __builtin_clz(doubling(random)));
    case FEW:
        return few[bench_below(random, FEW_SIZES)];
    default:
        return (uint32_t)value(MAX);
    }
}

/* --- blocks -------------------------------------------------------------------------------------------- */

static bool free_one_foreign(struct thread *t)
{
    if (++t->inbox >= value(THREADS))
        t->inbox = 0;
    void *block = ring_get(mailbox(&boxes, t->inbox, t->index));
    free(block);
    return block;
}

static bool free_foreign_round(struct thread *t)
{
    bool any = false;
    for (unsigned i = 0; i < value(THREADS); i++)
        any |= free_one_foreign(t);
    return any;
}

static void discard(struct thread *t, uint32_t slot)
{
    void *block = t->slots[slot];
    t->slots[slot] = NULL;
    if (!block || value(THREADS) == 1 || !happens(t, REMOTE)) {
        free(block);
        return;
    }
    unsigned to = (t->index + 1 + bench_below(&t->random, (uint32_t)value(THREADS) - 1)) % (unsigned)value(THREADS);
    if (!ring_put(mailbox(&boxes, t->index, to), block)) /* full: waiting would be timed, too */
        free(block);
}

static void fill(struct thread *t, uint32_t slot)
{
    uint32_t size = choose_size(&t->random);
    void *block = happens(t, ZEROED) ? calloc(1, size) : NULL;
    if (!block && happens(t, ALIGNED) && posix_memalign(&block, 32u << bench_below(&t->random, 8), size))
        block = NULL;
    if (!block)
        block = bench_malloc(size);
    bench_touch_pages(block, size);
    t->slots[slot] = block;
    t->sizes[slot] = size;
}

/* Half of the blocks grow by a half, as vectors do; the others shrink to a half. */
static void resize(struct thread *t, uint32_t slot)
{
    uint32_t old = t->sizes[slot], most = 4 * (uint32_t)value(MAX);
    uint32_t size = bench_below(&t->random, 2) && old < most ? old + old / 2 + 1 : old / 2 + 1;
    void *block = realloc(t->slots[slot], size);
    if (!block)
        bench_die("realloc(%u) returned NULL; give a smaller MAX or LIVE", size);
    bench_touch_ends(block, size);
    t->slots[slot] = block;
    t->sizes[slot] = size;
}

/* --- steps --------------------------------------------------------------------------------------------- */

static void step_on_stack(struct thread *t)
{
    if (!t->depth || t->depth == value(LIVE) || !bench_below(&t->random, 64))
        t->frees = t->depth && (t->depth == value(LIVE) || !t->frees);
    if (t->frees)
        discard(t, --t->depth);
    else
        fill(t, t->depth++);
}

static void step(struct thread *t)
{
    uint32_t live = (uint32_t)value(LIVE);
    bool young = value(LIFE) == YOUNG && bench_below(&t->random, 10);
    uint32_t slot = value(LIFE) == QUEUE ? (uint32_t)(t->step++ % live)
                                         : bench_below(&t->random, young ? live / YOUNG_SHARE + 1 : live);
    if (t->slots[slot] && happens(t, REALLOC)) {
        resize(t, slot);
        return;
    }
    discard(t, slot);
    fill(t, slot);
}

static void free_all(struct thread *t)
{
    uint32_t live = (uint32_t)value(LIVE);
    if (value(ORDER) == SHUFFLED)
        bench_shuffle(t->slots, live, &t->random);
    for (uint32_t i = 0; i < live; i++)
        discard(t, value(ORDER) == BACKWARDS ? live - 1 - i : i);
    t->depth = 0;
}

static void *run_phase(void *arg)
{
    struct thread *t = arg;
    for (uint64_t i = value(OPS) / value(PHASES); i; i--) {
        if (value(LIFE) == STACK)
            step_on_stack(t);
        else
            step(t);
        if (value(REMOTE) && value(THREADS) > 1)
            free_one_foreign(t);
    }
    if (value(ORDER) != NONE)
        free_all(t);
    return NULL;
}

static void run(void *arg)
{
    struct thread *t = arg;
    for (uint64_t phase = 0; phase < value(PHASES); phase++) {
        if (value(EXITS))
            pthread_join(bench_start(run_phase, t), NULL);
        else
            run_phase(t);
    }
    mailboxes_flush(&boxes, t->index);
    pthread_barrier_wait(&all_sent);
    while (free_foreign_round(t))
        ;
    for (uint32_t i = 0; i < value(LIVE); i++)
        free(t->slots[i]);
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    unsigned count = (unsigned)value(THREADS);
    uint64_t random = bench_seed(value(SEED), BENCH_MAX_THREADS);
    for (unsigned i = 0; i < FEW_SIZES; i++)
        few[i] = doubling(&random);
    mailboxes_init(&boxes, count, MAILBOX_BLOCKS);
    pthread_barrier_init(&all_sent, NULL, count);
    struct thread *threads = bench_map(count * sizeof *threads);
    for (unsigned i = 0; i < count; i++) {
        threads[i].index = i;
        threads[i].random = bench_seed(value(SEED), i);
        threads[i].slots = bench_map(value(LIVE) * sizeof *threads[i].slots);
        threads[i].sizes = bench_map(value(LIVE) * sizeof *threads[i].sizes);
    }
    uint64_t ns = bench_run_threads(count, run, threads, sizeof *threads);
    bench_report("draw", count * value(OPS), ns, "threads=%u", count);
    return 0;
}
