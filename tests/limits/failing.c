/* SPDX-License-Identifier: MIT
 *
 * At a limit requests fail, a thousand times. That costs nothing of what a
 * higher limit then gives: it is served as if none had failed.
 */
#include <sys/resource.h>

#include "check.h"

enum { LIMIT_MIB = 64, FAILURES = 1000, LEAST_SHARE = 85, BLOCK = 112 };

static size_t used(int which)
{
    size_t pages[6] = {0};
    FILE *f = fopen("/proc/self/statm", "r"); /* size resident shared text lib data */
    if (f == NULL ||
        fscanf(f, "%zu %zu %zu %zu %zu %zu", &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5]) != 6)
        die("/proc/self/statm: %s", strerror(errno));
    fclose(f);
    return pages[which == RLIMIT_AS ? 0 : 5] * (size_t)sysconf(_SC_PAGESIZE);
}

static void allow(int which, size_t bytes)
{
    struct rlimit limit = {bytes, RLIM_INFINITY};
    if (setrlimit(which, &limit) != 0)
        die("setrlimit: %s", strerror(errno));
}

static size_t fill(void)
{
    size_t bytes = 0;
    errno = 0;
    while (bytes < 4 * LIMIT_MIB * MIB && malloc(BLOCK) != NULL)
        bytes += BLOCK;
    if (errno != ENOMEM)
        die("%zu MiB served under a limit of %d, errno %d", bytes / MIB, LIMIT_MIB, errno);
    return bytes;
}

static void at_the_limit(int which, const char *name)
{
    static const size_t sizes[] = {1, 100, 1000, 5000, 30000, 50000, 200000, 3000000};
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        alarm(60);
        free(malloc(1));
        size_t before = used(which);
        allow(which, before + LIMIT_MIB * MIB);
        size_t first = fill();
        for (int i = 0; i < FAILURES; i++)
            for (size_t k = 0; k < COUNT(sizes); k++)
                free(malloc(sizes[k]));
        fill();
        allow(which, before + 2 * LIMIT_MIB * MIB);
        size_t second = fill();
        say("%s: %zu KiB of %d MiB, and %zu KiB of as many more", name, first / KIB, LIMIT_MIB, second / KIB);
        if (first < LIMIT_MIB * MIB / 100 * LEAST_SHARE || second < LIMIT_MIB * MIB / 100 * LEAST_SHARE)
            die("less than %d %% of what was allowed was served", LEAST_SHARE);
        _exit(0);
    }
    expect_success(pid, name);
}

int main(void)
{
    at_the_limit(RLIMIT_AS, "RLIMIT_AS");
    at_the_limit(RLIMIT_DATA, "RLIMIT_DATA");
    return 0;
}
