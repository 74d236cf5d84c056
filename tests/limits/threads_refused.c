/* SPDX-License-Identifier: MIT
 *
 * Threads until the system refuses one more, each with blocks of its own; then
 * all of them end. Three times, under RLIMIT_AS of 256 MiB, which thread
 * stacks use up first.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "check.h"

enum { MAX_THREADS = 2000, BLOCKS = 40 };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(unsigned long) served, refused;

static void *work(void *arg)
{
    uint64_t random = (uintptr_t)arg + 1;
    void *p[BLOCKS];
    size_t size[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size[i] = mixed_size(&random);
        errno = 0;
        p[i] = malloc(size[i]);
        if (p[i] != NULL)
            mark(p[i], size[i], (unsigned char)i);
        else if (errno != ENOMEM)
            die("malloc(%zu) refused with errno %d", size[i], errno);
        atomic_fetch_add(p[i] != NULL ? &served : &refused, 1);
    }
    pthread_mutex_lock(&gate); /* until all have been started */
    pthread_mutex_unlock(&gate);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (p[i] != NULL && !marked(p[i], size[i], (unsigned char)i))
            die("block %p of %zu bytes changed", p[i], size[i]);
        free(p[i]);
    }
    return NULL;
}

static int run(void)
{
    static pthread_t threads[MAX_THREADS];
    for (int round = 0; round < 3; round++) {
        uintptr_t n = 0;
        int err = 0;
        pthread_mutex_lock(&gate);
        while (n < MAX_THREADS && (err = pthread_create(&threads[n], NULL, work, (void *)n)) == 0)
            n++;
        pthread_mutex_unlock(&gate);
        for (uintptr_t i = 0; i < n; i++)
            pthread_join(threads[i], NULL);
        say("round %d: %zu threads, then: %s; %lu blocks served, %lu refused", round, (size_t)n, strerror(err),
            atomic_load(&served), atomic_load(&refused));
        if (n == 0 || atomic_load(&served) == 0)
            die("nothing was served");
        void *p = malloc(MIB);
        if (p == NULL)
            die("1 MiB refused after all threads had ended");
        free(p);
    }
    return 0;
}

int main(int argc, char **argv)
{
    alarm(60);
    if (argc > 1)
        return run();
    struct rlimit limit = {256 * MIB, 256 * MIB};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        die("setrlimit: %s", strerror(errno));
    execl("/proc/self/exe", argv[0], "run", (char *)NULL);
    die("exec: %s", strerror(errno));
}
