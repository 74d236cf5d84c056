/* SPDX-License-Identifier: MIT
 *
 * For programs that do one thing wrong: announce() prints on stdout which
 * pointer the library has to name, and hides from the compiler where the
 * pointer came from. passed() reports to table.py that the misuse was not
 * detected at once, and makes a drain check for it.
 */
#ifndef TESTS_MISUSE_H
#define TESTS_MISUSE_H

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int malloc_trim(size_t pad); /* not every C library declares these */
#ifdef PLAIN                 /* for other allocators, which may not have it */
#define free_sized(p, size) ((void)(size), free(p))
#else
void free_sized(void *p, size_t size);
#endif

static inline void *announce(void *p)
{
    char line[32];
    int n = snprintf(line, sizeof(line), "%p\n", p);
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(2);
    __asm__ volatile("" : "+r"(p));
    return p;
}

static inline int returned(void)
{
    return write(STDOUT_FILENO, "passed\n", 7) == 7 ? 0 : 2;
}

static inline int passed(void)
{
    int error = returned();
    malloc_trim(0);
    return error;
}

#endif
