/* SPDX-License-Identifier: MIT
 *
 * threads exit     threads end with live pool blocks, which others check and free; the next threads
 *                  use what they leave, so memory stays bounded
 * threads fork     children check and free their parent's blocks, and have pool blocks of their own
 *
 * Blocks are 4-64 KiB: the pool's classes, and those on both sides of it. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 400, BLOCKS = 24, CHILDREN = 20, PATIENCE = 100 };

struct block {
    unsigned char *p;
    size_t size;
    unsigned char with;
};

struct hand {
    struct block blocks[BLOCKS];
    uint64_t random;
};

static void *take(void *arg)
{
    struct hand *hand = arg;
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &hand->blocks[i];
        b->size = 4 * KIB + next_random(&hand->random) % (60 * KIB);
        b->with = (unsigned char)next_random(&hand->random);
        if (!(b->p = malloc(b->size)))
            die("malloc(%zu): %s", b->size, strerror(errno));
        mark(b->p, b->size, b->with);
    }
    return NULL;
}

static void *drop(void *arg)
{
    struct hand *hand = arg;
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &hand->blocks[i];
        if (!marked(b->p, b->size, b->with))
            die("block %p of %zu bytes changed", (void *)b->p, b->size);
        free(b->p);
        b->p = NULL;
    }
    return NULL;
}

static void in_thread(void *(*what)(void *), struct hand *hand)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, what, hand);
    if (error)
        die("no thread: %s", strerror(error));
    pthread_join(thread, NULL);
}

/* Two handfuls of blocks are alive at a time; main frees the older one, or its owner's successor does, or it is freed
 * later. */
static void threads_that_exit(void)
{
    static struct hand hands[THREADS];
    for (int i = 0; i < THREADS; i++) {
        hands[i].random = (uint64_t)i;
        in_thread(take, &hands[i]);
        if (i % 3 == 0)
            drop(&hands[i]);
        else if (i % 3 == 1)
            in_thread(drop, &hands[i]);
        else if (i >= 30)
            drop(&hands[i - 30]);
    }
    for (int i = THREADS - 30; i < THREADS; i++)
        if (i % 3 == 2)
            drop(&hands[i]);
}

static void child(struct hand *of_parent, int turn)
{
    struct hand own = {.random = (uint64_t)turn * 99};
    take(&own);
    drop(of_parent);
    in_thread(drop, &own);
    take(&own);
    drop(&own);
    exit(0);
}

static _Atomic(bool) stop;

static void *churn(void *arg)
{
    struct hand hand = {.random = (uintptr_t)arg};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        take(&hand);
        drop(&hand);
    }
    return NULL;
}

static void forks(void)
{
    pthread_t other;
    struct hand hand = {.random = 1};
    if (pthread_create(&other, NULL, churn, (void *)1))
        die("no thread");
    for (int i = 0; i < CHILDREN; i++) {
        if (i % 2)
            take(&hand);
        else
            in_thread(take, &hand);
        pid_t pid = fork();
        if (pid < 0)
            die("fork: %s", strerror(errno));
        if (pid == 0) {
            alarm(PATIENCE);
            child(&hand, i);
        }
        expect_success(pid, "child");
        drop(&hand);
    }
    atomic_store(&stop, true);
    pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "exit"))
        threads_that_exit();
    else if (!strcmp(what, "fork"))
        forks();
    else
        die("usage: threads exit|fork");
    return 0;
}
