/* SPDX-License-Identifier: MIT */
/*
 * bench_remote THREADS CYCLES WS PERCENT SEED: random_mixed in each thread, where PERCENT of the blocks are freed by
 * another thread. They travel through one mailbox (ring.h) for each ordered pair of threads; in every cycle a thread
 * frees at most one block that it received, so that remote frees mix with its own work as in a program. PERCENT 0 is
 * independent threads.
 */
#include "bench.h"
#include "mailboxes.h"

#include <sched.h>

enum { THREADS, CYCLES, WS, PERCENT, SEED, PARAMS };

static struct bench_param params[PARAMS] = {
    [THREADS] = {"THREADS", 2, 1, 64, NULL},    [CYCLES] = {"CYCLES", 5000000, 1, UINT64_C(1) << 40, NULL},
    [WS] = {"WS", 1000, 1, 1u << 24, NULL},     [PERCENT] = {"PERCENT", 50, 0, 100, NULL},
    [SEED] = {"SEED", 42, 1, UINT32_MAX, NULL},
};

enum { MAILBOX_BLOCKS = 4096 };

struct thread {
    _Alignas(BENCH_CACHE_LINE) unsigned index;
    unsigned inbox; /* the mailbox to check next */
    uint64_t random;
    uint64_t waits; /* times a mailbox was full */
};

static struct mailboxes boxes;

/* Frees at most one block that another thread sent; false if that mailbox was empty. */
static bool free_one_foreign(struct thread *t)
{
    if (++t->inbox == boxes.threads)
        t->inbox = 0;
    void *block = ring_get(mailbox(&boxes, t->inbox, t->index));
    free(block);
    return block != NULL;
}

static bool free_foreign_round(struct thread *t)
{
    bool any = false;
    for (unsigned i = 0; i < boxes.threads; i++)
        any |= free_one_foreign(t);
    return any;
}

static void send(struct thread *t, void *block)
{
    unsigned to = t->index;
    while (to == t->index)
        to = bench_below(&t->random, boxes.threads);
    while (!ring_put(mailbox(&boxes, t->index, to), block)) {
        t->waits++;
        if (!free_foreign_round(t))
            sched_yield();
    }
}

static void churn(struct thread *t, void **slots)
{
    uint32_t working_set = (uint32_t)params[WS].value;
    uint32_t percent = (uint32_t)params[PERCENT].value;
    for (uint64_t i = params[CYCLES].value; i > 0; i--) {
        void **slot = &slots[bench_below(&t->random, working_set)];
        if (!*slot) {
            size_t size = 16 + bench_below(&t->random, 1024);
            *slot = bench_malloc(size);
            bench_touch_ends(*slot, size);
        } else {
            if (bench_below(&t->random, 100) < percent)
                send(t, *slot);
            else
                free(*slot);
            *slot = NULL;
        }
        if (percent > 0)
            free_one_foreign(t);
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

static void run(void *arg)
{
    struct thread *t = arg;
    uint32_t working_set = (uint32_t)params[WS].value;
    void **slots = bench_slots(working_set);
    churn(t, slots);
    finish(t);
    bench_free_slots(slots, working_set);
}

int main(int argc, char **argv)
{
    static struct thread threads[BENCH_MAX_THREADS];
    bench_parse(argc, argv, params, PARAMS);
    unsigned thread_count = (unsigned)params[THREADS].value;
    if (thread_count == 1 && params[PERCENT].value > 0)
        bench_usage_error("PERCENT %llu with 1 thread: there is no other thread to free; "
                          "give THREADS >= 2 or PERCENT 0",
                          (unsigned long long)params[PERCENT].value);

    mailboxes_init(&boxes, thread_count, MAILBOX_BLOCKS);
    for (unsigned i = 0; i < boxes.threads; i++) {
        threads[i].index = i;
        threads[i].random = bench_seed(params[SEED].value, i);
    }
    uint64_t ns = bench_run_threads(thread_count, run, threads, sizeof threads[0]);

    uint64_t waits = 0;
    for (unsigned i = 0; i < boxes.threads; i++)
        waits += threads[i].waits;
    bench_report("remote", params[CYCLES].value * thread_count, ns, "threads=%u ws=%llu percent=%llu waits=%llu",
                 thread_count, (unsigned long long)params[WS].value, (unsigned long long)params[PERCENT].value,
                 (unsigned long long)waits);
    return 0;
}
