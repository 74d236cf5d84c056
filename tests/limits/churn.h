/* SPDX-License-Identifier: MIT
 *
 * Blocks of all sizes from several threads, where nothing may be refused.
 */
#ifndef TESTS_LIMITS_CHURN_H
#define TESTS_LIMITS_CHURN_H

#include <pthread.h>

#include "check.h"

enum { CHURN_BLOCKS = 2000, CHURN_ROUNDS = 3, CHURN_THREADS = 3 };

static inline void *churn(void *seed)
{
    static _Thread_local void *p[CHURN_BLOCKS];
    static _Thread_local size_t size[CHURN_BLOCKS];
    uint64_t random = (uintptr_t)seed;
    for (int round = 0; round < CHURN_ROUNDS; round++) {
        for (int i = 0; i < CHURN_BLOCKS; i++) {
            size[i] = mixed_size(&random);
            p[i] = malloc(size[i]);
            if (p[i] == NULL)
                die("%zu bytes refused: %s", size[i], strerror(errno));
            mark(p[i], size[i], (unsigned char)i);
        }
        for (int i = 0; i < CHURN_BLOCKS; i++) {
            if (!marked(p[i], size[i], (unsigned char)i))
                die("block %p of %zu bytes changed", p[i], size[i]);
            free(p[i]);
        }
    }
    return NULL;
}

/* First alone, then from several threads at once. */
static inline void churn_in_threads(void)
{
    pthread_t threads[CHURN_THREADS];
    churn((void *)1);
    for (uintptr_t i = 0; i < COUNT(threads); i++) {
        int err = pthread_create(&threads[i], NULL, churn, (void *)(i + 2));
        if (err != 0)
            die("no thread: %s", strerror(err));
    }
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
}

#endif
