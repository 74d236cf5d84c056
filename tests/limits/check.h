/* SPDX-License-Identifier: MIT
 *
 * What the programs of this folder share: how they complain and skip (without
 * allocating, as memory may be gone), blocks that remember their own content,
 * and how to run one more process and judge its end.
 */
#ifndef TESTS_LIMITS_CHECK_H
#define TESTS_LIMITS_CHECK_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define MIB (KIB * 1024)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { SKIPPED = 77 };

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    n = n < 0 ? 0 : n > (int)sizeof(line) - 2 ? (int)sizeof(line) - 2 : n;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        _exit(99);
}

#define die(...)          \
    do {                  \
        say(__VA_ARGS__); \
        _exit(1);         \
    } while (0)

#define skip(...)                     \
    do {                              \
        say("skipped: " __VA_ARGS__); \
        _exit(SKIPPED);               \
    } while (0)

/* A block marks its start, its end and one byte of each page between. */
static inline void mark(void *p, size_t size, unsigned char with)
{
    unsigned char *c = p;
    for (size_t at = 0; at < size; at += 4 * KIB)
        c[at] = with;
    c[size - 1] = with;
}

static inline bool marked(const void *p, size_t size, unsigned char with)
{
    const unsigned char *c = p;
    for (size_t at = 0; at < size; at += 4 * KIB)
        if (c[at] != with)
            return false;
    return c[size - 1] == with;
}

/* Waits for a child; dies unless it ended with status 0. */
static inline void expect_success(pid_t child, const char *what)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die("%s: waitpid: %s", what, strerror(errno));
    if (WIFSIGNALED(status))
        die("%s: killed by signal %d%s", what, WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ", it hung" : "");
    if (WEXITSTATUS(status) != 0)
        die("%s: exit status %d", what, WEXITSTATUS(status));
}

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Exercises every part of the library. */
static inline size_t mixed_size(uint64_t *random)
{
    static const size_t limits[] = {64, 256, 1024, 4096, 20 * 1024, 60000, 300000, 1200000};
    uint64_t r = next_random(random);
    unsigned of_100 = r % 100;
    size_t limit = limits[of_100 < 40   ? 0
                          : of_100 < 60 ? 1
                          : of_100 < 75 ? 2
                          : of_100 < 85 ? 3
                          : of_100 < 92 ? 4
                          : of_100 < 97 ? 5
                          : of_100 < 99 ? 6
                                        : 7];
    return 1 + (size_t)(r >> 32) % limit;
}

#endif
