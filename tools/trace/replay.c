/* SPDX-License-Identifier: MIT
 * Carries out a plan (plan.h) under whatever allocator serves this process: each thread of the trace is a thread here,
 * begins and ends where it did, and makes its calls in its order. Of each block a byte in each cache line is written,
 * beyond 64 KiB a byte in each system page; of a large block as much as the program had touched when it freed it.
 * Nothing else allocates: the replay maps its own memory before it starts, and the figures leave it out. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "plan.h"

enum {
    STEPS = 4096, /* of a thread in memory at a time */
    LINE = 64,
    LINES_UP_TO = 64 * 1024,
    STACK = 256 * 1024,
    FUTEX_WAIT_BIT = 9 | 128, /* FUTEX_WAIT_BITSET, private; not each toolchain has the kernel's headers */
    FUTEX_WAKE_BIT = 10 | 128,
    PATIENCE = 300, /* seconds that a thread waits for one step: then the plan is broken */
};

struct slot {
    char *block;
    uint64_t size;
    _Atomic uint32_t turn;
};

struct thread {
    const struct plan_thread *plan;
    struct plan_step *steps;
    uint64_t next; /* of the plan's */
    uint32_t in_memory;
    uint32_t epoch; /* plus 1: the step in progress */
    int64_t live;
};

static struct {
    int fd;
    struct plan_header header;
    struct plan_epoch *epochs;
    struct plan_thread *plans; /* by their first epoch */
    struct thread *threads;
    struct slot *slots;
    uint64_t started;      /* threads */
    _Atomic uint32_t open; /* the epoch that may be worked on */
    uint64_t live[PLAN_TENTHS], resident[PLAN_TENTHS], nanoseconds[PLAN_TENTHS];
    uint64_t base, peak, began;
    double paced;    /* how fast time goes, compared with the recorded one; 0: as fast as can be */
    uint64_t looked; /* when resident bytes were last taken, and their sum over time until then */
    double byte_seconds;
    size_t page;
    int statm;
} r;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "hakmem-replay: %s\n", what);
    exit(1);
}

static void *map(size_t size)
{
    void *p = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        fail("there is not enough memory for the plan");
    return p;
}

static void read_at(void *out, size_t size, uint64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(r.fd, (char *)out + done, size - done, (off_t)(offset + done));
        if (n <= 0 && errno != EINTR)
            fail("the plan is cut off");
        if (n > 0)
            done += (size_t)n;
    }
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Anonymous memory of this process. */
static uint64_t resident(void)
{
    char text[128];
    ssize_t n = pread(r.statm, text, sizeof text - 1, 0);
    unsigned long pages, shared;
    text[n > 0 ? n : 0] = 0;
    if (sscanf(text, "%*u %lu %lu", &pages, &shared) != 2)
        return 0;
    return (uint64_t)(pages - shared) * r.page;
}

/* The peak resident size of this program only: getrusage would include the program before the exec. */
static uint64_t most_resident(void)
{
    static char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text - 1);
    const char *line = n > 0 ? strstr(text, "VmHWM:") : NULL;
    close(fd);
    return line ? strtoull(line + 6, NULL, 10) * 1024 : 0;
}

/* --- epochs -------------------------------------------------------------------------------------------------- */

static void *run(void *thread);

static void start_threads(uint32_t epoch)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK);
    while (r.started < r.header.threads && r.plans[r.started].epoch == epoch) {
        pthread_t id;
        if (pthread_create(&id, &attr, run, &r.threads[r.started++]))
            fail("a thread cannot be made");
    }
    pthread_attr_destroy(&attr);
}

/* Called by the thread that did the last step of an epoch; no other thread works then. */
static void look(uint32_t tenth)
{
    uint64_t bytes = resident();
    bytes = bytes > r.base ? bytes - r.base : 0;
    if (bytes > r.peak)
        r.peak = bytes;
    uint64_t moment = now();
    r.byte_seconds += (double)bytes * (double)(moment - (r.looked ? r.looked : r.began)) / 1e9;
    r.looked = moment;
    if (!tenth)
        return;
    int64_t live = 0;
    for (uint64_t i = 0; i < r.header.threads; i++)
        live += r.threads[i].live;
    for (uint32_t i = tenth; i-- && !r.nanoseconds[i];) { /* in a short plan several tenths may end together */
        r.live[i] = (uint64_t)live;
        r.resident[i] = bytes;
        r.nanoseconds[i] = now() - r.began;
    }
}

/* Waits until it is time for this epoch. */
static void rest(uint32_t epoch)
{
    uint64_t until = r.began + (uint64_t)((double)r.epochs[epoch].at * r.paced);
    for (uint64_t moment; (moment = now()) < until;) {
        uint64_t left = until - moment < 100000000 ? until - moment : 100000000;
        nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
        look(0);
    }
}

static void finish_epoch(struct thread *t)
{
    if (!t->epoch)
        return;
    uint32_t epoch = t->epoch - 1;
    if (__atomic_sub_fetch(&r.epochs[epoch].threads, 1, __ATOMIC_ACQ_REL))
        return;
    look(r.epochs[epoch].tenth);
    if (r.paced > 0 && epoch + 1 < r.header.epochs)
        rest(epoch + 1);
    atomic_store_explicit(&r.open, epoch + 1, memory_order_release);
    start_threads(epoch + 1);
    /* A waiting thread names its epoch by a bit, so that few wake needlessly. */
    syscall(SYS_futex, &r.open, FUTEX_WAKE_BIT, INT32_MAX, NULL, NULL, 1u << ((epoch + 1) % 32));
}

static void wait_for_epoch(uint32_t epoch)
{
    uint32_t open;
    for (int spins = 0; (open = atomic_load_explicit(&r.open, memory_order_acquire)) < epoch; spins++)
        if (spins > 200)
            syscall(SYS_futex, &r.open, FUTEX_WAIT_BIT, open, NULL, NULL, 1u << (epoch % 32));
}

static void begin_epoch(struct thread *t, uint32_t epoch)
{
    finish_epoch(t);
    wait_for_epoch(epoch);
    t->epoch = epoch + 1;
}

/* --- steps --------------------------------------------------------------------------------------------------- */

static const struct plan_step *next_step(struct thread *t)
{
    uint32_t at = (uint32_t)(t->next % STEPS);
    if (at == 0) {
        uint64_t left = t->plan->steps - t->next;
        t->in_memory = left < STEPS ? (uint32_t)left : STEPS;
        read_at(t->steps, t->in_memory * sizeof *t->steps, t->plan->first + t->next * sizeof *t->steps);
    }
    t->next++;
    return &t->steps[at];
}

static struct slot *wait_for_turn(const struct plan_step *step)
{
    struct slot *slot = &r.slots[step->slot];
    uint64_t since = 0;
    for (int tries = 0; atomic_load_explicit(&slot->turn, memory_order_acquire) != step->turn; tries++) {
        if (tries < 100)
            continue;
        sched_yield();
        if (tries % 1024 == 0) {
            if (!since)
                since = now();
            else if (now() - since > (uint64_t)PATIENCE * 1000000000)
                fail("a thread waits for a step that nobody does: the plan is broken");
        }
    }
    return slot;
}

static void touch(char *block, uint64_t from, uint64_t to)
{
    uint64_t stride = to - from <= LINES_UP_TO ? LINE : r.page;
    for (uint64_t i = from; i < to; i += stride)
        *(volatile char *)(block + i) = 1;
}

static void allocate(struct thread *t, const struct plan_step *at, struct slot *slot)
{
    struct plan_step step = *at;
    uint64_t had = step.op == PLAN_REALLOC ? slot->size : 0;
    void *p = NULL;
    switch (step.op) {
    case PLAN_MALLOC:
        p = malloc(step.size);
        break;
    case PLAN_CALLOC:
        p = calloc(1, step.size);
        break;
    case PLAN_ALIGNED:
        if (posix_memalign(&p, (size_t)1 << (step.align < 3 ? 3 : step.align), step.size))
            p = NULL;
        break;
    default:
        p = realloc(slot->block, step.size ? step.size : 1);
        break;
    }
    if (!p)
        fail("there is no memory for a block");
    uint64_t touched = step.flags & PLAN_TOUCHED_LATER ? next_step(t)->size : step.size;
    if (touched > had)
        touch(p, had, touched);
    slot->block = p;
    slot->size = step.size;
    t->live += (int64_t)step.size - (int64_t)had;
}

static void *run(void *thread)
{
    struct thread *t = thread;
    t->steps = map(STEPS * sizeof *t->steps);
    while (t->next < t->plan->steps) {
        const struct plan_step *step = next_step(t);
        if (step->op == PLAN_EPOCH_BEGINS) {
            begin_epoch(t, step->slot);
            continue;
        }
        uint32_t turn = step->turn;
        struct slot *slot = wait_for_turn(step);
        if (step->op == PLAN_FREE) {
            free(slot->block);
            t->live -= (int64_t)slot->size;
            slot->size = 0;
        } else {
            allocate(t, step, slot);
        }
        atomic_store_explicit(&slot->turn, turn + 1, memory_order_release);
    }
    munmap(t->steps, STEPS * sizeof *t->steps + 1);
    finish_epoch(t);
    return NULL;
}

/* --- the whole ------------------------------------------------------------------------------------------------- */

static int by_first_epoch(const void *a, const void *b)
{
    const struct plan_thread *x = a, *y = b;
    return x->epoch != y->epoch ? (x->epoch < y->epoch ? -1 : 1) : (x->name > y->name) - (x->name < y->name);
}

static void sort_threads(void)
{
    /* qsort may allocate; threads are few, and nearly in order. */
    for (uint64_t i = 1; i < r.header.threads; i++)
        for (uint64_t j = i; j && by_first_epoch(&r.plans[j - 1], &r.plans[j]) > 0; j--) {
            struct plan_thread swap = r.plans[j];
            r.plans[j] = r.plans[j - 1];
            r.plans[j - 1] = swap;
        }
}

static void load(const char *path)
{
    r.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r.fd < 0)
        fail(strerror(errno));
    read_at(&r.header, sizeof r.header, 0);
    if (memcmp(r.header.magic, PLAN_MAGIC, sizeof r.header.magic))
        fail("this is no plan; hakmem-replay --plan TRACE PLAN makes one");
    size_t epochs = r.header.epochs * sizeof *r.epochs, threads = r.header.threads * sizeof *r.plans;
    r.epochs = map(epochs);
    r.plans = map(threads);
    r.threads = map(r.header.threads * sizeof *r.threads);
    r.slots = map(r.header.slots * sizeof *r.slots);
    read_at(r.epochs, epochs, sizeof r.header);
    read_at(r.plans, threads, sizeof r.header + epochs);
    sort_threads();
    for (uint64_t i = 0; i < r.header.threads; i++)
        r.threads[i].plan = &r.plans[i];
}

static void print_list(const char *name, const uint64_t *values)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < PLAN_TENTHS; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)values[i]);
    printf("]");
}

int replay(const char *plan, double paced)
{
    r.page = (size_t)sysconf(_SC_PAGESIZE);
    r.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    load(plan);
    double recorded = (double)r.header.ended / 1e9;
    if (paced > 0)
        r.paced = recorded > paced ? paced / recorded : 1;
    r.base = resident();
    r.began = now();
    uint64_t used = 0;
    if (r.header.threads) {
        r.started = 1; /* the first thread is this one */
        start_threads(0);
        run(&r.threads[0]);
        wait_for_epoch((uint32_t)r.header.epochs);
        used = now() - r.began;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\": %.6f, \"cpu\": %.6f, \"steps\": %llu, \"peak_resident\": %llu, \"mean_resident\": %.0f, "
           "\"max_rss\": %llu",
           (double)used / 1e9,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
           (unsigned long long)r.header.steps, (unsigned long long)r.peak,
           used ? r.byte_seconds / ((double)used / 1e9) : 0.0, (unsigned long long)most_resident());
    print_list("recorded", r.header.live);
    print_list("live", r.live);
    print_list("resident", r.resident);
    print_list("nanoseconds", r.nanoseconds);
    puts("}");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && argv[1][0] != '-')
        return replay(argv[1], 0);
    if (argc == 4 && !strcmp(argv[1], "--paced") && strtod(argv[2], NULL) > 0)
        return replay(argv[3], strtod(argv[2], NULL));
    if ((argc == 3 || argc == 4) && !strcmp(argv[1], "--plan"))
        return plan_make(argv[2], argv[3]);
    fputs("usage: hakmem-replay PLAN                    carries it out, and tells in JSON how it went\n"
          "       hakmem-replay --paced SECONDS PLAN    the same in the time that was recorded, or in so many seconds\n"
          "       hakmem-replay --plan TRACE [PLAN]    makes a plan of a trace of libhakmem-trace.so\n",
          stderr);
    return 2;
}
