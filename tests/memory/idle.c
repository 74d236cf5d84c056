/* SPDX-License-Identifier: MIT
 * idle KIND THREADS KIB: threads that have worked and wait. small: each has worked on 64 blocks of 16 to 2000 bytes;
 * classes: each has once held eight blocks of each size class, and after that comes a trim. Each may hold KIB, its
 * stack included; when all have ended, 48 MiB may stay. */
#include "resident.h"

#include <pthread.h>

#include "hakmem.h"

enum { SLOTS = 64, CYCLES = 10000, OF_EACH = 8, MOST_SIZES = 128, LARGEST = 64 * 1024, STACK = 256 * 1024 };
enum { ENDED_MIB = 48, MOST_THREADS = 4096 };

static pthread_barrier_t waiting, over;
static bool classes;

static void work_on_slots(uint64_t random)
{
    void *slots[SLOTS] = {NULL};
    for (unsigned i = 0; i < CYCLES; i++) {
        uint64_t r = next_random(&random);
        size_t size = 16 + (r >> 16) % 1985;
        free(slots[r % SLOTS]);
        slots[r % SLOTS] = malloc(size);
        if (!slots[r % SLOTS])
            die("no memory for %zu bytes", size);
        mark(slots[r % SLOTS], size, 1);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        free(slots[i]);
}

/* Steps of 16 bytes, then 8 for each doubling. */
static void hold_classes(void)
{
    void *held[MOST_SIZES * OF_EACH];
    unsigned n = 0;
    for (size_t size = 16, step = 16; size <= LARGEST && n < COUNT(held); size += step) {
        while (size >= 16 * step)
            step *= 2;
        for (unsigned i = 0; i < OF_EACH; i++) {
            held[n] = malloc(size);
            if (!held[n])
                die("no memory for %zu bytes", size);
            mark(held[n++], size, 1);
        }
    }
    while (n)
        free(held[--n]);
}

static void *live(void *seed)
{
    if (classes)
        hold_classes();
    else
        work_on_slots(*(const uint64_t *)seed);
    pthread_barrier_wait(&waiting);
    pthread_barrier_wait(&over);
    return NULL;
}

static size_t beyond(size_t before)
{
    size_t now = resident();
    return now > before ? now - before : 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("idle small|classes THREADS KIB");
    static pthread_t threads[MOST_THREADS];
    static uint64_t seeds[MOST_THREADS];
    classes = argv[1][0] == 'c';
    unsigned count = (unsigned)atoi(argv[2]);
    size_t most = (size_t)atoi(argv[3]);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_barrier_init(&waiting, NULL, count + 1);
    pthread_barrier_init(&over, NULL, count + 1);
    size_t before = resident();
    for (unsigned i = 0; i < count; i++) {
        seeds[i] = 42 + i;
        if (pthread_create(&threads[i], &attr, live, &seeds[i]))
            skip("no thread %u of %u", i + 1, count);
    }
    pthread_barrier_wait(&waiting);
    if (classes)
        hakmem_trim(0);
    size_t each = beyond(before) / count / KIB;
    pthread_barrier_wait(&over);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    size_t ended = beyond(before) / MIB;
    printf("%zu KiB for each of %u idle threads, %zu MiB when they have ended\n", each, count, ended);
    return each <= most && ended <= ENDED_MIB ? 0 : 1;
}
