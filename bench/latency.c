/* SPDX-License-Identifier: MIT */
/*
 * bench_latency WORKLOAD THREADS CYCLES MAX REMOTE SPREAD_MS MIB SEED: how long the slowest calls take.
 * Each malloc and each free is timed by itself (stopwatch.h says how, and what is subtracted).
 * steady: in each cycle a thread allocates or frees a block in one of its slots, 16 to MAX bytes, each doubling equally
 * likely; REMOTE percent of the blocks are freed by another thread. bursts: at intervals a thread allocates some
 * thousand blocks at once and frees them all. purge: one more thread has allocated MIB of blocks and frees them all
 * when the others begin; only the calls of the others are timed. The CYCLES of each thread are spread over SPREAD_MS
 * (0: at full speed).
 */
#include "bench.h"
#include "histogram.h"
#include "mailboxes.h"
#include "stopwatch.h"

#include <sched.h>
#include <stdio.h>

enum { WORKLOAD, THREADS, CYCLES, MAX, REMOTE, SPREAD_MS, MIB, SEED, PARAMS };
enum { STEADY, BURSTS, PURGE };

static const char *const workload_names[] = {"steady", "bursts", "purge"};

static struct bench_param params[PARAMS] = {
    [WORKLOAD] = {"WORKLOAD", STEADY, 0, 0, "steady|bursts|purge"},
    [THREADS] = {"THREADS", 2, 1, 64, NULL},
    [CYCLES] = {"CYCLES", 2000000, 1, UINT64_C(1) << 40, NULL},
    [MAX] = {"MAX", 20000, 32, 1u << 30, NULL},
    [REMOTE] = {"REMOTE", 0, 0, 100, NULL},
    [SPREAD_MS] = {"SPREAD_MS", 0, 0, 86400000, NULL},
    [MIB] = {"MIB", 1024, 1, 1u << 20, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum {
    SLOTS = 1000,
    MAILBOX_BLOCKS = 4096,
    BURST_BLOCKS = 5000,
    CYCLES_TO_BURST = 50000,
    SMALLEST = 16,
    HOARD_MAX = 32 * 1024,
};

struct thread {
    _Alignas(BENCH_CACHE_LINE) unsigned index;
    unsigned inbox; /* the mailbox to check next */
    uint64_t random;
    void **burst;
    struct stopwatch watch;
    struct histogram mallocs, frees;
};

static struct ticks ticks;
static struct mailboxes boxes;
static unsigned thread_count;

/* --- timed calls ------------------------------------------------------------------------------ */

static size_t choose_size(uint64_t *random, uint32_t max)
{
    unsigned doublings = 32u - (unsigned)__builtin_clz((max - 1) / SMALLEST);
    size_t base = (size_t)SMALLEST << bench_below(random, doublings);
    size_t size = base + bench_below(random, (uint32_t)base);
    return size < max ? size : max;
}

static void *timed_malloc(struct thread *t)
{
    size_t size = choose_size(&t->random, (uint32_t)params[MAX].value);
    uint64_t began = stopwatch_start(&t->watch);
    void *block = malloc(size);
    histogram_count(&t->mallocs, stopwatch_stop(&t->watch, began));
    if (!block)
        bench_die("malloc(%zu) returned NULL; give fewer THREADS or a smaller MAX", size);
    bench_touch_ends(block, size);
    return block;
}

static void timed_free(struct thread *t, void *block)
{
    uint64_t began = stopwatch_start(&t->watch);
    free(block);
    histogram_count(&t->frees, stopwatch_stop(&t->watch, began));
}

/* --- other threads' blocks -------------------------------------------------------------------- */

/* Frees at most one block that another thread sent; false if that mailbox was empty. */
static bool free_one_foreign(struct thread *t)
{
    if (++t->inbox >= thread_count)
        t->inbox = 0;
    void *block = ring_get(mailbox(&boxes, t->inbox, t->index));
    if (block)
        timed_free(t, block);
    return block != NULL;
}

static bool free_foreign_round(struct thread *t)
{
    bool any = false;
    for (unsigned i = 0; i < thread_count; i++)
        any |= free_one_foreign(t);
    return any;
}

static void send(struct thread *t, void *block)
{
    unsigned to = (t->index + 1 + bench_below(&t->random, thread_count - 1)) % thread_count;
    while (!ring_put(mailbox(&boxes, t->index, to), block)) {
        if (!free_foreign_round(t))
            sched_yield();
    }
}

/* Receives what the others still send, until none does. */
static void finish(struct thread *t)
{
    mailboxes_close(&boxes, t->index);
    while (mailboxes_open(&boxes)) {
        if (!free_foreign_round(t))
            sched_yield();
    }
    while (free_foreign_round(t))
        ;
}

/* --- workloads ------------------------------------------------------------------------------------ */

static void cycle(struct thread *t, void **slot)
{
    if (!*slot) {
        *slot = timed_malloc(t);
        return;
    }
    if (bench_below(&t->random, 100) < params[REMOTE].value)
        send(t, *slot);
    else
        timed_free(t, *slot);
    *slot = NULL;
}

static void burst(struct thread *t)
{
    for (unsigned i = 0; i < BURST_BLOCKS; i++)
        t->burst[i] = timed_malloc(t);
    for (unsigned i = 0; i < BURST_BLOCKS; i++)
        timed_free(t, t->burst[i]);
}

/* Called about once a millisecond: after as many cycles as belong in one. */
static void keep_pace(uint64_t began, uint64_t done)
{
    uint64_t due = began + done * params[SPREAD_MS].value / params[CYCLES].value * 1000000;
    uint64_t now = bench_now_ns();
    if (now < due)
        bench_wait_ms((due - now) / 1000000 + 1);
}

static void churn(struct thread *t, void **slots)
{
    uint64_t cycles = params[CYCLES].value, spread = params[SPREAD_MS].value;
    uint64_t in_a_row = spread ? cycles / spread + 1 : UINT64_MAX;
    uint64_t began = bench_now_ns();
    for (uint64_t i = 1; i <= cycles; i++) {
        cycle(t, &slots[bench_below(&t->random, SLOTS)]);
        if (params[REMOTE].value > 0)
            free_one_foreign(t);
        if (params[WORKLOAD].value == BURSTS && i % CYCLES_TO_BURST == 0)
            burst(t);
        if (i % in_a_row == 0)
            keep_pace(began, i);
    }
}

/* The blocks of the thread that is not timed: a list through their first words. */
static void *hoard(uint64_t random)
{
    void **list = NULL;
    for (uint64_t taken = 0, wanted = params[MIB].value << 20; taken < wanted;) {
        size_t size = choose_size(&random, HOARD_MAX);
        void **block = bench_malloc(size);
        bench_touch_pages(block, size);
        *block = list;
        list = block;
        taken += size;
    }
    return list;
}

static void give_up(void **list)
{
    while (list) {
        void **next = *list;
        free(list);
        list = next;
    }
}

/* The hoarder allocates its blocks before the others begin, and lives as long as they do. */
static pthread_barrier_t hoarded;

static void run_hoarder(uint64_t random)
{
    void **list = hoard(random);
    pthread_barrier_wait(&hoarded);
    give_up(list);
    while (mailboxes_open(&boxes))
        bench_wait_ms(10);
}

static void run(void *arg)
{
    struct thread *t = arg;
    if (t->index == thread_count) {
        run_hoarder(t->random);
        return;
    }
    void **slots = bench_slots(SLOTS);
    if (params[WORKLOAD].value == PURGE)
        pthread_barrier_wait(&hoarded);
    stopwatch_open(&t->watch, &ticks);
    churn(t, slots);
    finish(t);
    stopwatch_close(&t->watch);
    bench_free_slots(slots, SLOTS);
}

/* --- result ----------------------------------------------------------------------------------- */

struct text {
    char text[256];
    size_t length;
};

static void add_quantile(struct text *text, const char *call, const char *name, uint64_t value)
{
    size_t room = sizeof text->text - text->length;
    text->length +=
        (size_t)snprintf(text->text + text->length, room, " %s_%s_ns=%.1f", call, name, ticks.ns * (double)value);
}

static struct text quantiles(const char *call, const struct histogram *h)
{
    struct text text = {.length = 0};
    add_quantile(&text, call, "p50", histogram_quantile(h, 1, 2));
    add_quantile(&text, call, "p99", histogram_quantile(h, 1, 100));
    add_quantile(&text, call, "p999", histogram_quantile(h, 1, 1000));
    add_quantile(&text, call, "p9999", histogram_quantile(h, 1, 10000));
    add_quantile(&text, call, "worst", h->worst);
    return text;
}

static void report(const struct thread *threads, uint64_t ns)
{
    static struct histogram mallocs, frees;
    uint64_t taken_ns = 0;
    for (unsigned i = 0; i < thread_count; i++) {
        histogram_add(&mallocs, &threads[i].mallocs);
        histogram_add(&frees, &threads[i].frees);
        taken_ns += threads[i].watch.taken_ns;
    }
    bench_report("latency", mallocs.count + frees.count, ns,
                 "workload=%s threads=%u max=%llu remote=%llu clock_ns=%.1f preempted_ms=%.1f%s%s",
                 workload_names[params[WORKLOAD].value], thread_count, (unsigned long long)params[MAX].value,
                 (unsigned long long)params[REMOTE].value, ticks.ns * (double)ticks.overhead, (double)taken_ns / 1e6,
                 quantiles("malloc", &mallocs).text, quantiles("free", &frees).text);
}

static void read_arguments(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    thread_count = (unsigned)params[THREADS].value;
    if (thread_count == 1 && params[REMOTE].value > 0)
        bench_usage_error("REMOTE %llu with 1 thread: there is no other thread to free; give THREADS >= 2 or REMOTE 0",
                          (unsigned long long)params[REMOTE].value);
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    ticks = ticks_measure();
    mailboxes_init(&boxes, thread_count, MAILBOX_BLOCKS);
    unsigned all = thread_count + (params[WORKLOAD].value == PURGE);
    struct thread *threads = bench_map(all * sizeof *threads);
    for (unsigned i = 0; i < all; i++) {
        threads[i].index = i;
        threads[i].random = bench_seed(params[SEED].value, i);
        threads[i].burst = bench_map(BURST_BLOCKS * sizeof(void *));
    }
    pthread_barrier_init(&hoarded, NULL, all);
    report(threads, bench_run_threads(all, run, threads, sizeof threads[0]));
    return 0;
}
