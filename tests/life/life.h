/* SPDX-License-Identifier: MIT
 * What the program of this folder and the library beside it share: which allocator serves them, traffic that
 * reaches every part of it, threads that make it, and children that must end well. */
#ifndef TESTS_LIFE_LIFE_H
#define TESTS_LIFE_LIFE_H

#include "../limits/check.h"

#include <pthread.h>
#include <stdatomic.h>

/* The process's malloc, or the library's functions if it was opened by dlopen. */
struct life_allocator {
    void *(*take)(size_t);
    void *(*take_zeroed)(size_t, size_t);
    void *(*change)(void *, size_t);
    void *(*take_aligned)(size_t, size_t);
    void (*give)(void *);
    size_t (*usable)(void *);
    size_t (*trim)(size_t);
    int (*stats)(int fd, int json);
    void (*print)(void); /* malloc_stats */
    int (*info)(int options, FILE *stream);
};
extern struct life_allocator life;

/* Rounds of mixed sizes, each block with a mark of its own; aborts if one changed. */
void life_traffic(unsigned rounds, uint64_t seed);
/* Threads that allocate and free until life_end_busy(), or as long as the process lives. */
void life_start_busy(unsigned threads);
void life_end_busy(void);
/* Forks; the child allocates and frees, and ends by exit() if requested. */
void life_fork(bool by_exit);
/* The other library's: allocates and frees under its mutex. */
void life_work_locked(void);
/* The number behind "NAME: " in the statistics. */
long life_statistic(const char *name);

#endif
