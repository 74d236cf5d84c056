/* SPDX-License-Identifier: MIT
 * The resident set of the process, for the programs of this folder; read without malloc. */
#ifndef TESTS_MEMORY_RESIDENT_H
#define TESTS_MEMORY_RESIDENT_H

#include "../limits/check.h"

#include <fcntl.h>

/* In bytes. */
static inline size_t resident(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        die("/proc/self/statm cannot be read");
    close(fd);
    char *end;
    strtoul(text, &end, 10);
    return strtoul(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

#endif
