/* SPDX-License-Identifier: MIT */
/*
 * bench_larson SLEEP_SEC MIN MAX CHUNKS ROUNDS SEED THREADS: threads that start and end.
 * The main thread fills one array of CHUNKS blocks for each of THREADS chains. A thread replaces random blocks of its
 * chain's array, ROUNDS * CHUNKS times, then hands the array to a thread it creates, and ends; so most blocks are freed
 * by another thread than the one that allocated them.
 * With `--ops` in front, the first argument is the number of replacements over all chains instead
 * of seconds: fixed work, whose whole-process time can be compared.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { LENGTH, MIN, MAX, CHUNKS, ROUNDS, SEED, THREADS, PARAMS };

static struct bench_param params[PARAMS] = {
    [LENGTH] = {"SLEEP_SEC", 2, 1, 86400, NULL},
    [MIN] = {"MIN", 8, 1, 1u << 30, NULL},
    [MAX] = {"MAX", 128, 1, 1u << 30, NULL},
    [CHUNKS] = {"CHUNKS", 1024, 1, 1u << 28, NULL},
    [ROUNDS] = {"ROUNDS", 1, 1, 1u << 30, NULL},
    [SEED] = {"SEED", 12345, 1, UINT32_MAX, NULL},
    [THREADS] = {"THREADS", 4, 1, BENCH_MAX_THREADS, NULL},
};

/* An array of blocks and the threads that own it one after the other. */
struct chain {
    _Alignas(BENCH_CACHE_LINE) void **blocks;
    uint64_t random;
    uint64_t left; /* replacements until the end of the run */
    uint64_t done;
    uint64_t threads;
    pthread_t owner; /* valid once threads > 0 */
};

static struct chain chains[BENCH_MAX_THREADS];
static atomic_bool stop;

static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end_signal = PTHREAD_COND_INITIALIZER;
static unsigned chains_running;

static void *new_block(uint64_t *random)
{
    uint32_t min = (uint32_t)params[MIN].value;
    size_t size = min + bench_below(random, (uint32_t)params[MAX].value - min + 1);
    void *block = bench_malloc(size);
    bench_touch_ends(block, size);
    return block;
}

/* One thread's share: at most ROUNDS * CHUNKS replacements. */
static void replace_blocks(struct chain *chain)
{
    uint32_t chunks = (uint32_t)params[CHUNKS].value;
    uint64_t share = params[ROUNDS].value * chunks;
    uint64_t random = chain->random;
    uint64_t i = 0;
    if (share > chain->left)
        share = chain->left;
    while (i < share && !atomic_load_explicit(&stop, memory_order_relaxed)) {
        void **slot = &chain->blocks[bench_below(&random, chunks)];
        free(*slot);
        *slot = new_block(&random);
        i++;
    }
    chain->random = random;
    chain->left -= i;
    chain->done += i;
}

static void end_chain(void)
{
    pthread_mutex_lock(&end_lock);
    chains_running--;
    pthread_cond_signal(&end_signal);
    pthread_mutex_unlock(&end_lock);
}

static void *serve(void *arg)
{
    struct chain *chain = arg;
    replace_blocks(chain);
    if (chain->threads++ > 0)
        pthread_join(chain->owner, NULL);
    chain->owner = pthread_self();
    if (chain->left == 0 || atomic_load_explicit(&stop, memory_order_relaxed)) {
        end_chain();
        return NULL;
    }
    pthread_t heir;
    int error = pthread_create(&heir, NULL, serve, chain);
    if (error)
        bench_die("thread %llu of a chain: %s; use fewer THREADS or more ROUNDS",
                  (unsigned long long)chain->threads + 1, strerror(error));
    return NULL;
}

static void fill_chain(struct chain *chain, unsigned index, uint64_t ops)
{
    uint32_t chunks = (uint32_t)params[CHUNKS].value;
    chain->random = bench_seed(params[SEED].value, index);
    chain->left = ops;
    chain->blocks = calloc(chunks, sizeof *chain->blocks);
    if (!chain->blocks)
        bench_die("no memory for %u slots; give smaller CHUNKS", chunks);
    for (uint32_t i = 0; i < chunks; i++)
        chain->blocks[i] = new_block(&chain->random);
}

static void start_chains(unsigned count)
{
    chains_running = count;
    for (unsigned i = 0; i < count; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, NULL, serve, &chains[i]);
        if (error)
            bench_die("thread %u of %u: %s; use fewer THREADS", i + 1, count, strerror(error));
    }
}

static void wait_for_chains(unsigned count)
{
    pthread_mutex_lock(&end_lock);
    while (chains_running > 0)
        pthread_cond_wait(&end_signal, &end_lock);
    pthread_mutex_unlock(&end_lock);
    for (unsigned i = 0; i < count; i++)
        pthread_join(chains[i].owner, NULL);
}

static void free_chain(struct chain *chain)
{
    for (uint64_t i = 0; i < params[CHUNKS].value; i++)
        free(chain->blocks[i]);
    free(chain->blocks);
}

static void read_arguments(int argc, char **argv, bool fixed_work)
{
    if (fixed_work) {
        params[LENGTH].name = "OPS";
        params[LENGTH].value = 10000000;
        params[LENGTH].max = UINT64_C(1) << 40;
    }
    bench_parse(argc, argv, params, PARAMS);
    if (params[MAX].value < params[MIN].value)
        bench_usage_error("MAX %llu is below MIN %llu; give MAX >= MIN", (unsigned long long)params[MAX].value,
                          (unsigned long long)params[MIN].value);
}

int main(int argc, char **argv)
{
    bool fixed_work = bench_take_flag(&argc, argv, "--ops");
    read_arguments(argc, argv, fixed_work);
    unsigned count = (unsigned)params[THREADS].value;
    uint64_t ops = fixed_work ? (params[LENGTH].value + count - 1) / count : UINT64_MAX;
    for (unsigned i = 0; i < count; i++)
        fill_chain(&chains[i], i, ops);

    uint64_t begin = bench_now_ns();
    start_chains(count);
    if (!fixed_work) {
        nanosleep(&(struct timespec){.tv_sec = (time_t)params[LENGTH].value}, NULL);
        atomic_store_explicit(&stop, true, memory_order_relaxed);
    }
    wait_for_chains(count);
    uint64_t end = bench_now_ns();

    uint64_t done = 0;
    uint64_t threads = 0;
    for (unsigned i = 0; i < count; i++) {
        done += chains[i].done;
        threads += chains[i].threads;
        free_chain(&chains[i]);
    }
    bench_report("larson", done, end - begin, "threads=%u created=%llu", count, (unsigned long long)threads);
    return 0;
}
