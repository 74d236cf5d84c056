/* SPDX-License-Identifier: MIT
 *
 * mlockall of what is and will be, then a workload with several threads.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

enum { BLOCKS = 2000 };

static void *work(void *arg)
{
    static _Thread_local void *p[BLOCKS];
    static _Thread_local size_t size[BLOCKS];
    uint64_t random = (uintptr_t)arg;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size[i] = mixed_size(&random);
            p[i] = malloc(size[i]);
            if (p[i] == NULL)
                die("%zu bytes refused: %s", size[i], strerror(errno));
            mark(p[i], size[i], (unsigned char)i);
        }
        for (int i = 0; i < BLOCKS; i++) {
            if (!marked(p[i], size[i], (unsigned char)i))
                die("block %p of %zu bytes changed", p[i], size[i]);
            free(p[i]);
        }
    }
    return NULL;
}

int main(void)
{
    alarm(60);
    free(malloc(100));
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        if (geteuid() == 0)
            die("mlockall: %s", strerror(errno));
        skip("mlockall: %s", strerror(errno));
    }
    work((void *)1);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < COUNT(threads); i++) {
        int err = pthread_create(&threads[i], NULL, work, (void *)(i + 2));
        if (err != 0)
            die("no thread: %s", strerror(err));
    }
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    return 0;
}
