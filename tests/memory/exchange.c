/* SPDX-License-Identifier: MIT
 * exchange: two threads that allocate and free the same sizes, most blocks freed by the other one. What one is
 * given beyond what it gives is a random walk; memory must not follow it. Seven times as many operations may
 * not take more than a quarter and 1 MiB more. */
#include "resident.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SLOTS = 1000, BOX = 1024, FIRST = 1000000, ALL = 8 * FIRST };

static _Atomic(void *) box[2][BOX]; /* blocks on their way to a thread */

static void *churn(void *arg)
{
    size_t me = *(size_t *)arg;
    size_t first = 0;
    void *slots[SLOTS] = {NULL};
    uint64_t random = 42 + me;
    for (unsigned i = 0; i < ALL; i++) {
        uint64_t r = next_random(&random);
        void **slot = &slots[r % SLOTS];
        if (*slot && r >> 32 & 7) { /* 7 of 8 go to the other thread, for what it had not taken yet */
            free(atomic_exchange(&box[!me][r >> 40 & (BOX - 1)], *slot));
        } else {
            free(*slot);
        }
        size_t size = 16 + (r >> 16) % 1024;
        char *p = *slot = malloc(size);
        p[0] = p[size - 1] = 1;
        free(atomic_exchange(&box[me][r >> 50 & (BOX - 1)], NULL));
        if (i == FIRST)
            first = resident() / KIB;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        free(slots[i]);
    return (void *)first;
}

int main(void)
{
    pthread_t threads[2];
    size_t names[2] = {0, 1}, first = 0;
    for (unsigned i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, churn, &names[i]))
            die("no thread");
    for (unsigned i = 0; i < 2; i++) {
        void *kib;
        pthread_join(threads[i], &kib);
        first = first > (size_t)kib ? first : (size_t)kib;
    }
    size_t last = resident() / KIB;
    printf("%zu KiB after the first eighth, %zu KiB at the end\n", first, last);
    return last <= first + first / 4 + 1024 ? 0 : 1;
}
