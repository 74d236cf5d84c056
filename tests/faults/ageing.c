/* SPDX-License-Identifier: MIT
 * Twelve threads, more than the machine has processors, allocate and free for 2 s, so that each is held up anywhere,
 * also between its look at the clock and what it does with it. HAKMEM_PURGE_DELAY_MS is an hour: no page is idle, and
 * none may go back. (The plain backend gives back wholly free superslabs at once; that is no matter of age.) */
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "../limits/check.h"
#include "../watchdog.h"
#include "hakmem.h"

enum { SECONDS = 60, THREADS = 12, BLOCKS = 3000, RUN_S = 2 };

static _Atomic(int) stop;

/* Slabs become empty and serve again all the time. */
static void *work(void *seed)
{
    static _Thread_local void *block[BLOCKS];
    uint64_t random = (uintptr_t)seed;
    while (!stop) {
        size_t size = 16 + next_random(&random) % 3000, n = 1 + next_random(&random) % BLOCKS;
        for (size_t i = 0; i < n; i++)
            if ((block[i] = malloc(size)) != NULL)
                mark(block[i], size, 1);
        for (size_t i = 0; i < n; i++)
            free(block[i]);
    }
    return NULL;
}

static uint64_t calls_of(const char *statistics, const char *cause)
{
    char key[64];
    uint64_t sum = 0;
    snprintf(key, sizeof key, "\"cause\": \"%s\"", cause);
    for (const char *at = statistics; (at = strstr(at, key)) != NULL; at++) {
        const char *calls = strstr(at, "\"calls\": ");
        sum += calls ? strtoull(calls + 9, NULL, 10) : 0;
    }
    return sum;
}

int main(void)
{
    static const char *const causes[] = {"partial_release", "purge", "lru_evict", "direct_release", "batch_release"};
    static char text[1 << 20];
    pthread_t threads[THREADS];
    watchdog_start(SECONDS);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)))
            die("no thread");
    nanosleep(&(struct timespec){RUN_S, 0}, NULL);
    int fd = memfd_create("stats", 0);
    if (fd < 0 || hakmem_stats(fd, 1))
        die("no statistics");
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    stop = 1;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    bool plain = !strcmp(hakmem_backend(), "legacy");
    for (size_t i = 0; i < COUNT(causes); i++) {
        uint64_t calls = plain && i >= 3 ? 0 : calls_of(text, causes[i]);
        if (calls)
            die("%llu calls of %s, an hour early", (unsigned long long)calls, causes[i]);
    }
    return 0;
}
