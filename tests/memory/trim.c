/* SPDX-License-Identifier: MIT
 * trim KIND: hakmem_trim and malloc_trim give back what other threads freed, at once and with no call of theirs.
 * A thread takes and frees 1 GiB and sleeps; then hakmem_trim(KEEP) leaves at most KEEP bytes resident, and
 * malloc_trim nothing, but for what the sleeping thread holds in bins and slabs: 5 %.
 *   KIND      small (16 B-2 KiB), pool (8-52 KiB), large (64 KiB-4 MiB), mixed (a third of the bytes each) */
#include "blocks.h"

#include <malloc.h>
#include <pthread.h>

#include "hakmem.h"

int malloc_trim(size_t pad); /* not in every malloc.h */

#define BURST (1024 * MIB)
#define KEEP (64 * MIB)

static pthread_barrier_t freed, measured;

static void *take_and_free(void *kind)
{
    blocks_free(blocks_take(kind, BURST));
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&measured);
    return NULL;
}

static void expect_at_most(size_t before, size_t more, const char *after)
{
    size_t now = resident();
    say("%zu KiB more than before after %s", (now - before) / KIB, after);
    if (now > before + more + BURST / 20)
        die("that is more than %zu KiB", (more + BURST / 20) / KIB);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: trim KIND");
    pthread_t other;
    pthread_barrier_init(&freed, NULL, 2);
    pthread_barrier_init(&measured, NULL, 2);
    free(malloc(100));
    size_t before = resident();
    if (pthread_create(&other, NULL, take_and_free, argv[1]))
        skip("no second thread");
    pthread_barrier_wait(&freed);
    if (resident() < before + KEEP)
        skip("what is free goes back at once here");
    hakmem_trim(KEEP);
    expect_at_most(before, KEEP, "hakmem_trim");
    malloc_trim(0);
    expect_at_most(before, 0, "malloc_trim");
    pthread_barrier_wait(&measured);
    pthread_join(other, NULL);
    return 0;
}
