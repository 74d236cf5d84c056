/* SPDX-License-Identifier: MIT */
/*
 * bench_footprint WORKLOAD KIND AMOUNT IDLE_MS SEED: does memory stay bounded, and is it returned? prodcons: for AMOUNT
 * milliseconds one thread allocates and another frees, at most RING blocks apart. threads: AMOUNT short threads, one
 * after the other, each with a few live blocks.
 * Prints the resident set at each tenth of the way, after IDLE_MS of idleness, and after 1000
 * small pairs by the main thread.
 */
#include "bench.h"
#include "ring.h"

#include <sched.h>
#include <stdio.h>

enum { WORKLOAD, KIND, AMOUNT, IDLE_MS, SEED, PARAMS };
enum { PRODCONS, THREADS };
enum { SMALL, POOL, MIXED };
static const char *const workload_names[] = {"prodcons", "threads"};
static const char *const kind_names[] = {"small", "pool", "mixed"};

static struct bench_param params[PARAMS] = {
    [WORKLOAD] = {"WORKLOAD", PRODCONS, 0, 0, "prodcons|threads"},
    [KIND] = {"KIND", SMALL, 0, 0, "small|pool|mixed"},
    [AMOUNT] = {"AMOUNT", 10000, 10, UINT64_C(1) << 32, NULL},
    [IDLE_MS] = {"IDLE_MS", 2000, 0, 86400000, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { SAMPLES = 10, RING = 1024, SLOTS = 32, THREAD_PAIRS = 200, PAIRS = 1000 };

static uint64_t samples_kib[SAMPLES];

static size_t choose_size(uint64_t *random)
{
    if (params[KIND].value == MIXED)
        return bench_mixed_size(random);
    if (params[KIND].value == SMALL)
        return 16 + bench_below(random, 1024);
    return 8 * 1024 + bench_below(random, 44 * 1024 + 1);
}

static void *take(uint64_t *random)
{
    size_t size = choose_size(random);
    void *block = bench_malloc(size);
    bench_touch_pages(block, size);
    return block;
}

/* --- producer and consumer -------------------------------------------------------------------- */

static struct ring ring;
static _Atomic(bool) stop, all_sent;

static void *produce(void *arg)
{
    uint64_t random = *(const uint64_t *)arg;
    uint64_t sent = 0;
    for (; !atomic_load_explicit(&stop, memory_order_relaxed); sent++) {
        void *block = take(&random);
        while (!ring_put(&ring, block))
            sched_yield();
    }
    ring_flush(&ring);
    atomic_store(&all_sent, true);
    return (void *)(uintptr_t)sent;
}

static void *consume(void *arg)
{
    (void)arg;
    for (;;) {
        /* In this order: blocks sent before all_sent are visible to the ring_get after it. */
        bool last = atomic_load(&all_sent);
        void *block = ring_get(&ring);
        if (!block && last)
            return NULL;
        if (!block)
            sched_yield();
        free(block);
    }
}

static uint64_t prodcons(void)
{
    void *sent;
    uint64_t random = bench_seed(params[SEED].value, 0);
    ring_init(&ring, RING);
    pthread_t producer = bench_start(produce, &random);
    pthread_t consumer = bench_start(consume, NULL);
    for (unsigned i = 0; i < SAMPLES; i++) {
        bench_wait_ms(params[AMOUNT].value / SAMPLES);
        samples_kib[i] = bench_rss_kib();
    }
    atomic_store(&stop, true);
    pthread_join(producer, &sent);
    pthread_join(consumer, NULL);
    return (uintptr_t)sent;
}

/* --- short threads ---------------------------------------------------------------------------- */

static void *live(void *arg)
{
    uint64_t random = *(const uint64_t *)arg;
    void *slots[SLOTS] = {NULL};
    for (unsigned i = 0; i < THREAD_PAIRS; i++) {
        void **slot = &slots[bench_below(&random, SLOTS)];
        free(*slot);
        *slot = take(&random);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        free(slots[i]);
    return NULL;
}

static uint64_t short_threads(void)
{
    uint64_t count = params[AMOUNT].value / SAMPLES;
    for (unsigned i = 0; i < SAMPLES; i++) {
        for (uint64_t n = 0; n < count; n++) {
            uint64_t random = bench_seed(params[SEED].value, i * count + n);
            pthread_join(bench_start(live, &random), NULL);
        }
        samples_kib[i] = bench_rss_kib();
    }
    return count * SAMPLES * THREAD_PAIRS;
}

/* ---------------------------------------------------------------------------------------------- */

static void small_pairs(void)
{
    for (int i = 0; i < PAIRS; i++) {
        void *block = bench_malloc(64);
        bench_touch_ends(block, 64);
        free(block);
    }
}

static void samples_text(char *text, size_t size)
{
    size_t length = 0;
    for (unsigned i = 0; i < SAMPLES; i++)
        length +=
            (size_t)snprintf(text + length, size - length, "%s%llu", i ? "," : "", (unsigned long long)samples_kib[i]);
}

int main(int argc, char **argv)
{
    char text[SAMPLES * 24];
    bench_parse(argc, argv, params, PARAMS);
    free(bench_malloc(64)); /* the allocator's own start belongs to "before" */
    uint64_t before = bench_rss_kib();
    uint64_t begin = bench_now_ns();
    uint64_t ops = params[WORKLOAD].value == PRODCONS ? prodcons() : short_threads();
    uint64_t ns = bench_now_ns() - begin;
    bench_wait_ms(params[IDLE_MS].value);
    uint64_t idled = bench_rss_kib();
    small_pairs();
    samples_text(text, sizeof text);
    bench_report("footprint", ops, ns,
                 "workload=%s kind=%s rss_before_kib=%llu rss_kib=%s rss_idle_kib=%llu "
                 "rss_after_kib=%llu",
                 workload_names[params[WORKLOAD].value], kind_names[params[KIND].value], (unsigned long long)before,
                 text, (unsigned long long)idled, (unsigned long long)bench_rss_kib());
    return 0;
}
