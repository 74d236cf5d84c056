/* SPDX-License-Identifier: MIT
 * The threads of the process, and traffic that makes one start if it may: for the tests of HAKMEM_BACKGROUND=1. */
#ifndef TESTS_MEMORY_THREADS_H
#define TESTS_MEMORY_THREADS_H

#include "../limits/check.h"

#include <dirent.h>
#include <time.h>

static inline uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* How many; *other is one that is not the first. */
static inline unsigned threads(pid_t *other)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    if (!d)
        die("/proc/self/task cannot be read");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            n++;
            if (atoi(e->d_name) != getpid() && other)
                *other = atoi(e->d_name);
        }
    closedir(d);
    return n;
}

/* Slow paths, for so long or until there are so many threads. */
static inline void traffic(uint64_t ms, unsigned until)
{
    for (uint64_t end = now_ms() + ms; now_ms() < end && threads(NULL) != until;)
        for (unsigned i = 0; i < 10000; i++)
            free(malloc(64));
}

static inline void wait_for_thread(void)
{
    traffic(5000, 2);
    if (threads(NULL) != 2)
        die("%u threads after 5 s of traffic, not 2", threads(NULL));
}

#endif
