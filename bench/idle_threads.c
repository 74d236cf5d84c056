/* SPDX-License-Identifier: MIT */
/*
 * bench_idle_threads KIND THREADS IDLE_MS TRIM SEED: memory held by threads that have worked and now wait.
 * small: each thread has worked on 64 blocks of 16-2000 B. classes: each has once held eight blocks of every size class
 * up to 64 KiB. All is freed when they begin to wait. Prints the resident set for each of them after IDLE_MS (after a
 * malloc_trim, if TRIM says so) beyond its initial size, and what stays IDLE_MS after all have ended. A child process
 * first measures the same number of threads that allocate nothing; their stacks are subtracted.
 */
#include "bench.h"

#include <malloc.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIND, THREADS, IDLE_MS, TRIM, SEED, PARAMS };
enum { SMALL, CLASSES };

static const char *const kind_names[] = {"small", "classes"};

static struct bench_param params[PARAMS] = {
    [KIND] = {"KIND", SMALL, 0, 0, "small|classes"},  [THREADS] = {"THREADS", 1000, 1, 4096, NULL},
    [IDLE_MS] = {"IDLE_MS", 1000, 0, 86400000, NULL}, [TRIM] = {"TRIM", 0, 0, 0, "no|trim"},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { SLOTS = 64, CYCLES = 10000, CLASSES_MAX = 96, CLASS_BLOCKS = 8, LARGEST = 64 * 1024, STACK = 256 * 1024 };

static pthread_barrier_t waiting, over;

static void work_small(uint64_t random)
{
    void *slots[SLOTS] = {NULL};
    for (unsigned i = 0; i < CYCLES; i++) {
        void **slot = &slots[bench_below(&random, SLOTS)];
        size_t size = 16 + bench_below(&random, 1985);
        free(*slot);
        *slot = bench_malloc(size);
        bench_touch_ends(*slot, size);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        free(slots[i]);
}

/* In steps of 16 bytes, then 8 per doubling: no current allocator has more classes. */
static size_t next_class(size_t size)
{
    size_t step = 16;
    while (size >= 16 * step)
        step *= 2;
    return size + step;
}

static void work_classes(void)
{
    void *blocks[CLASSES_MAX * CLASS_BLOCKS];
    unsigned count = 0;
    for (size_t size = 16; size <= LARGEST; size = next_class(size)) {
        for (unsigned i = 0; i < CLASS_BLOCKS; i++) {
            blocks[count] = bench_malloc(size);
            bench_touch_pages(blocks[count++], size);
        }
    }
    for (unsigned i = 0; i < count; i++)
        free(blocks[i]);
}

/* arg: the thread's seed; NULL: it allocates nothing. */
static void *live(void *arg)
{
    if (arg && params[KIND].value == SMALL)
        work_small(*(const uint64_t *)arg);
    else if (arg)
        work_classes();
    pthread_barrier_wait(&waiting);
    pthread_barrier_wait(&over);
    return NULL;
}

/* Starts all threads and returns when they wait. */
static void start(pthread_t *threads, uint64_t *seeds)
{
    unsigned count = (unsigned)params[THREADS].value;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_barrier_init(&waiting, NULL, count + 1);
    pthread_barrier_init(&over, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        int error = pthread_create(&threads[i], &attr, live, seeds ? &seeds[i] : NULL);
        if (error)
            bench_die("thread %u of %u: %s; use fewer THREADS", i + 1, count, strerror(error));
    }
    pthread_barrier_wait(&waiting);
}

static void end(const pthread_t *threads)
{
    pthread_barrier_wait(&over);
    for (uint64_t i = 0; i < params[THREADS].value; i++)
        pthread_join(threads[i], NULL);
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* Costs that only the first thread of a process causes, mainly the library's pages, are excluded. */
static uint64_t settled_kib(void)
{
    pthread_join(bench_start(do_nothing, NULL), NULL);
    bench_rss_kib();
    return bench_rss_kib();
}

static uint64_t beyond(uint64_t kib, uint64_t before)
{
    return kib > before ? kib - before : 0;
}

/* Done in a child, so that it does not affect this process. The answer is a few bytes, which a pipe holds. */
static uint64_t stacks_kib(pthread_t *threads)
{
    int ends[2];
    uint64_t kib = 0;
    if (pipe(ends) < 0)
        bench_die("no pipe");
    pid_t child = fork();
    if (child < 0)
        bench_die("no child");
    if (child == 0) {
        uint64_t before = settled_kib();
        start(threads, NULL);
        kib = beyond(bench_rss_kib(), before);
        _exit(write(ends[1], &kib, sizeof kib) == sizeof kib ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &kib, sizeof kib) != sizeof kib)
        bench_die("the child could not start %llu threads", (unsigned long long)params[THREADS].value);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return kib;
}

static void trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

int main(int argc, char **argv)
{
    bench_parse(argc, argv, params, PARAMS);
    uint64_t count = params[THREADS].value;
    pthread_t *threads = bench_map(count * sizeof *threads);
    uint64_t *seeds = bench_map(count * sizeof *seeds);
    for (uint64_t i = 0; i < count; i++)
        seeds[i] = bench_seed(params[SEED].value, i);
    memset(threads, 0, count * sizeof *threads);
    uint64_t stacks = stacks_kib(threads);
    free(bench_malloc(64)); /* the allocator's own start belongs to "before" */

    uint64_t before = settled_kib(), begin = bench_now_ns();
    start(threads, seeds);
    uint64_t ns = bench_now_ns() - begin;
    bench_wait_ms(params[IDLE_MS].value);
    if (params[TRIM].value)
        trim();
    uint64_t idle = beyond(bench_rss_kib(), before);
    end(threads);
    bench_wait_ms(params[IDLE_MS].value);
    uint64_t ended = beyond(bench_rss_kib(), before);
    bench_report("idle_threads", count, ns, "kind=%s trim=%llu kib_each=%.1f stack_kib_each=%.1f ended_mib=%.1f",
                 kind_names[params[KIND].value], (unsigned long long)params[TRIM].value,
                 (double)beyond(idle, stacks) / (double)count, (double)stacks / (double)count, (double)ended / 1024);
    return 0;
}
