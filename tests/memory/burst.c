/* SPDX-License-Identifier: MIT
 * burst KIND FREED_BY PAIRS: what stays resident after a burst.
 * 1 GiB of blocks is taken and touched, all of it is freed, nothing happens for 2 s; then 1000 pairs of malloc
 * and free of small blocks must bring resident memory to within 5 % of the burst of the level before.
 *   KIND      small (16 B-2 KiB), pool (8-52 KiB), large (64 KiB-4 MiB), mixed (a third of the bytes each)
 *   FREED_BY  same thread; ended: another one, which ends; alive: another one, which sleeps meanwhile
 *   PAIRS     one: of 64 bytes; any: of all small sizes in turn, so that each class sees few */
#include "blocks.h"

#include <pthread.h>
#include <time.h>

#define BURST (1024 * MIB)

static struct block *blocks;
static pthread_barrier_t freed, measured;

static void *release(void *alive)
{
    blocks_free(blocks);
    pthread_barrier_wait(&freed);
    if (alive)
        pthread_barrier_wait(&measured);
    return NULL;
}

static void pairs(bool one)
{
    for (size_t i = 0; i < 1000; i++) {
        char *p = malloc(one ? 64 : 16 + i % 1000);
        *(volatile char *)p = 1;
        free(p);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: burst KIND FREED_BY PAIRS");
    bool same = !strcmp(argv[2], "same"), alive = !strcmp(argv[2], "alive");
    pthread_t other;
    pthread_barrier_init(&freed, NULL, same ? 1 : 2);
    pthread_barrier_init(&measured, NULL, 2);
    pairs(false); /* what the allocator needs anyway belongs to the level before */
    size_t before = resident();
    blocks = blocks_take(argv[1], BURST);
    size_t full = resident();
    if (same)
        release(NULL);
    else if (pthread_create(&other, NULL, release, alive ? &other : NULL))
        skip("no second thread");
    else
        pthread_barrier_wait(&freed);
    if (!same && !alive)
        pthread_join(other, NULL);
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    pairs(!strcmp(argv[3], "one"));
    size_t after = resident();
    if (full < before + BURST / 10 * 9)
        die("the burst made only %zu KiB resident", (full - before) / KIB);
    if (after > before + BURST / 20)
        die("before the burst %zu KiB, after it and the pairs %zu KiB", before / KIB, after / KIB);
    if (alive) {
        pthread_barrier_wait(&measured);
        pthread_join(other, NULL);
    }
    say("%zu KiB more than before", after > before ? (after - before) / KIB : 0);
    return 0;
}
