/* SPDX-License-Identifier: MIT
 *
 * work churn SIZE     blocks of one size come and go, many at a time
 * work shrink         small blocks of many sizes: grow, free most, grow again, free all
 * work idle           the same, then idleness and a few small blocks
 * work remote         another thread frees some blocks of slabs that stay in use
 * work pool           blocks of 8-52 KiB, alive at the end
 * work pool-idle      blocks of 8-52 KiB freed, then idleness and a few small blocks
 * work large          blocks above 52 KiB of several sizes, some larger than any memory
 * work whole          many blocks of one size come and go together, and with them whole superslabs
 * work whole-idle     the same, then idleness and a few small blocks
 * work open           a library opened with RTLD_DEEPBIND
 *
 * Each does the same, call for call, whenever it runs, so that two runs differ by their settings alone. The library
 * uses CANARY bytes of each size. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 60000, ROUNDS = 4, IDLE_MS = 60 };

static void *slots[SLOTS];
static uint64_t state = 42;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

static void *take(size_t size)
{
    if (size > CANARY)
        size -= CANARY;
    char *p = malloc(size);
    if (!p)
        abort();
    for (size_t i = 0; i < size; i += 4096)
        p[i] = 1;
    return p;
}

static void drop(unsigned i)
{
    free(slots[i]);
    slots[i] = NULL;
}

static void churn(size_t size)
{
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < 600; i++)
            slots[i] = take(size);
        for (unsigned i = 0; i < 600; i++)
            drop(i);
    }
}

static void shrink(void)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SLOTS; i++)
            if (!slots[i])
                slots[i] = take(16 + below(1024));
        for (unsigned i = 0; i < SLOTS; i++)
            if (below(10) || i < SLOTS / 2)
                drop(i);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        drop(i);
}

static void whole(void)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SLOTS; i++)
            slots[i] = take(400);
        for (unsigned i = 0; i < SLOTS; i++)
            drop(i);
    }
}

static void idle(void)
{
    nanosleep(&(struct timespec){.tv_nsec = IDLE_MS * 1000000L}, NULL);
    for (unsigned i = 0; i < 2000; i++)
        slots[i] = take(64);
    for (unsigned i = 0; i < 2000; i++)
        drop(i);
}

static void *free_half(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < SLOTS; i += 2)
        drop(i);
    return NULL;
}

/* The library ticks at times that are not the same in each run. A tick empties slabs without a live block, so each slab
 * keeps some; the first two ticks look at all slabs, so they come before there are any. */
static void remote(void)
{
    pthread_t other;
    idle();
    idle();
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SLOTS; i++)
            if (!slots[i]) {
                size_t size = 64 + 256 * (i / 128 % 2);
                slots[i] = take(size);
                if (i % 8 == 0)
                    take(size); /* never freed */
            }
        if (pthread_create(&other, NULL, free_half, NULL) || pthread_join(other, NULL))
            abort();
    }
}

static size_t pool_size(void)
{
    return 8192 + below(44 * 1024);
}

static void pool(unsigned blocks)
{
    for (unsigned i = 0; i < blocks; i++)
        slots[i] = take(pool_size());
}

static void pool_idle(void)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        pool(400);
        for (unsigned i = 0; i < 400; i++)
            drop(i);
    }
    idle();
}

static void large(void)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < 40; i++)
            slots[i] = take(53 * 1024 + below(4000 * 1024));
        slots[40] = take(40u << 20);
        volatile size_t too_much = (size_t)1 << 46;
        free(malloc(too_much));
        for (unsigned i = 0; i <= 40; i++)
            drop(i);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "churn") && argc > 2) {
        churn((size_t)atol(argv[2]));
    } else if (!strcmp(what, "shrink")) {
        shrink();
    } else if (!strcmp(what, "idle")) {
        shrink();
        idle();
    } else if (!strcmp(what, "remote")) {
        remote();
    } else if (!strcmp(what, "pool")) {
        pool(400);
    } else if (!strcmp(what, "pool-idle")) {
        pool_idle();
    } else if (!strcmp(what, "large")) {
        large();
    } else if (!strcmp(what, "whole")) {
        whole();
    } else if (!strcmp(what, "helped")) { /* the heap is so large that the helper starts */
        void *held = take(8 * 1024 * 1024);
        for (unsigned round = 0; round <= ROUNDS; round++)
            idle();
        free(held);
    } else if (!strcmp(what, "open")) {
        dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
    } else if (!strcmp(what, "whole-idle")) {
        whole();
        idle();
    } else {
        fprintf(stderr,
                "usage: work churn SIZE|shrink|idle|remote|pool|pool-idle|large|helped|whole|whole-idle|open\n");
        return 2;
    }
    return 0;
}
