/* SPDX-License-Identifier: MIT
 * churn: threads come and go, and free each other's blocks. When all is freed, one trim gives all of it back: a second
 * finds nothing, and little is resident. */
#include "resident.h"

#include <hakmem.h>
#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 150, THREADS = 4, CALLS = 20000, SLOTS = 40000, LARGEST = 4000, KEPT = 4 << 20 };

static _Atomic(void *) slots[SLOTS];

static void *exchange(void *seed)
{
    uint64_t random = (uintptr_t)seed;
    for (unsigned i = 0; i < CALLS; i++) {
        void *p = next_random(&random) % 2 ? malloc(1 + next_random(&random) % LARGEST) : NULL;
        free(atomic_exchange(&slots[next_random(&random) % SLOTS], p));
    }
    return NULL;
}

static void *free_some(void *seed)
{
    uint64_t random = (uintptr_t)seed;
    for (unsigned i = 0; i < CALLS / 20; i++)
        free(atomic_exchange(&slots[next_random(&random) % SLOTS], NULL));
    return NULL;
}

static void pass(uint64_t *random)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, next_random(random) % 3 ? exchange : free_some,
                           (void *)(uintptr_t)next_random(random)))
            die("no thread");
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    uint64_t random = 7;
    pass(&random); /* stacks, and the library's own */
    size_t before = resident();
    for (unsigned i = 0; i < ROUNDS; i++)
        pass(&random);
    for (unsigned i = 0; i < SLOTS; i++)
        free(atomic_exchange(&slots[i], NULL));
    size_t full = resident();
    if (!hakmem_trim(0))
        die("nothing was given back of %zu KiB", full / 1024);
    if (hakmem_trim(0))
        die("a second trim gives back what the first one left");
    if (resident() > before + KEPT)
        die("resident before %zu KiB, full %zu KiB, at the end %zu KiB", before / 1024, full / 1024, resident() / 1024);
    return 0;
}
