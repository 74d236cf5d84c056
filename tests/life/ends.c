/* SPDX-License-Identifier: MIT
 * The end of threads and of the process: exit among threads that allocate or end, threads of constructors, threads
 * whose first call is free. */
#include "cases.h"

/* --- exit -------------------------------------------------------------------------------------------------- */

static void *short_thread(void *seed)
{
    life_traffic(5, (uintptr_t)seed);
    return NULL;
}

static void *start_threads(void *seed)
{
    for (uintptr_t n = (uintptr_t)seed;; n++) {
        pthread_t t;
        if (!pthread_create(&t, NULL, short_thread, (void *)n))
            pthread_detach(t);
        usleep(100); /* otherwise there are too many at once */
    }
    return NULL;
}

static void give_at_exit(void)
{
    life_traffic(50, 17);
}

static void exit_often(unsigned count, void (*start)(void))
{
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            atexit(give_at_exit);
            start();
            usleep(1000 + i * 100);
            exit(0);
        }
        expect_success(child, "a child that exits");
    }
}

static void start_busy(void)
{
    life_start_busy(3);
}

static void start_ending(void)
{
    pthread_t t[2];
    for (uintptr_t i = 0; i < COUNT(t); i++)
        if (pthread_create(&t[i], NULL, start_threads, (void *)i))
            die("no thread");
}

static void exit_busy(unsigned count)
{
    exit_often(count, start_busy);
    life_start_busy(3);
}

static void exit_ending(unsigned count)
{
    exit_often(count, start_ending);
    start_ending();
}

/* --- threads -------------------------------------------------------------------------------------------------- */

/* The other library's constructor has started and joined many. */
static void threads_of_constructor(unsigned count)
{
    (void)count;
    life_traffic(100, 1);
    long live = life_statistic("live"), slabs = life_statistic("active_slabs");
    if (live > 1)
        die("%ld threads live, and %ld slabs are theirs: all but this one have ended", live, slabs);
}

static void *free_first(void *block)
{
    life.give(block);
    return NULL;
}

static long blocks_away(void)
{
    life.trim(0);
    return life_statistic("allocated_blocks");
}

static void first_call_frees(unsigned count)
{
    long before = blocks_away();
    for (unsigned i = 0; i < count; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, free_first, life.take(40)) || pthread_join(t, NULL))
            die("no thread");
    }
    long lost = blocks_away() - before;
    if (lost > (long)count / 8)
        die("%ld blocks more are away after %u threads that freed one each", lost, count);
}

const struct life_case life_ends[] = {
    {"exit_busy", exit_busy, 20},
    {"exit_ending", exit_ending, 20},
    {"threads_of_constructor", threads_of_constructor, 0},
    {"first_call_frees", first_call_frees, 2000},
    {0},
};
