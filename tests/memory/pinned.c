/* SPDX-License-Identifier: MIT
 * pinned KIND: blocks that another thread freed while their owner goes on elsewhere.
 * A thread takes 128 MiB of blocks of one size (of many sizes: "mixed") and frees each 50th, this one the rest; the
 * owner then sleeps. As many blocks again must find the room of the first: a fourth more, and 8 MiB. */
#include "resident.h"

#include <pthread.h>

enum { LIVE = 128, EVERY = 50, MOST = 1 << 20 };

static void *blocks[MOST];
static unsigned count;
static size_t step, sizes; /* block i has smallest + i % sizes * step bytes */
static size_t smallest;
static pthread_barrier_t turn;

static size_t size_of(unsigned i)
{
    return smallest + i % sizes * step;
}

static void take(void)
{
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = malloc(size_of(i));
        if (!blocks[i])
            die("no memory for %zu bytes", size_of(i));
        mark(blocks[i], size_of(i), 1);
    }
}

static void give(bool owned)
{
    for (unsigned i = 0; i < count; i++)
        if ((i % EVERY == 0) == owned)
            free(blocks[i]);
}

static void *own(void *unused)
{
    take();
    give(true);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

int main(int argc, char **argv)
{
    int kind = argc > 1 ? argv[1][0] : 's';
    smallest = kind == 'p' ? 20000 : 256;
    sizes = kind == 'm' ? 8 : 1;
    step = 256;
    count = (unsigned)(LIVE * MIB / (smallest + (sizes - 1) * step / 2));
    pthread_t owner;
    pthread_barrier_init(&turn, NULL, 2);
    memset(blocks, 0, sizeof blocks);
    if (pthread_create(&owner, NULL, own, NULL))
        die("no thread");
    pthread_barrier_wait(&turn);
    size_t once = resident();
    give(false);
    take();
    size_t twice = resident();
    pthread_barrier_wait(&turn);
    pthread_join(owner, NULL);
    printf("%zu KiB, and %zu KiB with as many blocks again\n", once / KIB, twice / KIB);
    return twice <= once + once / 4 + 8 * MIB ? 0 : 1;
}
