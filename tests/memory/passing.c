/* SPDX-License-Identifier: MIT
 * passing: threads that never call, many at once, with large stacks. glibc keeps 40 MiB of stacks; the thread that ends
 * frees what is beyond, after its last destructor. Nothing may stay of that. */
#include "resident.h"

#include <pthread.h>

enum { ROUNDS = 60, THREADS = 24, STACK = 8 << 20, NOISE = 2 << 20 };

static void *wait_a_little(void *us)
{
    usleep((useconds_t)(uintptr_t)us);
    return NULL;
}

static void pass(pthread_attr_t *attr)
{
    pthread_t t;
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&t, attr, wait_a_little, (void *)(2000 + 200 * i)))
            die("no thread");
    usleep(30000);
}

/* Threads of a busy machine take longer to end. */
static bool is_level(size_t level)
{
    for (unsigned i = 0; i < 100 && resident() > level; i++)
        usleep(100000);
    return resident() <= level;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK);
    for (unsigned i = 0; i < ROUNDS / 6; i++)
        pass(&attr);
    size_t before = resident();
    for (unsigned i = 0; i < ROUNDS; i++)
        pass(&attr);
    if (!is_level(before + NOISE))
        die("resident before %zu KiB, after %u threads %zu KiB", before / 1024, ROUNDS * THREADS, resident() / 1024);
    return 0;
}
