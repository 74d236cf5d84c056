/* SPDX-License-Identifier: MIT
 * Blocks of one size, all of them written to, and how much of the pages that they lie in is resident. */
#ifndef TESTS_UNIT_TOUCHED_H
#define TESTS_UNIT_TOUCHED_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

struct touched {
    char **block; /* by address */
    size_t n, size;
};

static int by_address(const void *a, const void *b)
{
    char *const *p = a, *const *q = b;
    return (*p > *q) - (*p < *q);
}

static struct touched touch(size_t size, size_t bytes)
{
    struct touched s = {.n = hak_max(1, bytes / size), .size = size};
    s.block = mmap(NULL, s.n * sizeof *s.block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(s.block, MAP_FAILED);
    for (size_t i = 0; i < s.n; i++) {
        s.block[i] = hak_malloc(size);
        assert_non_null(s.block[i]);
        memset(s.block[i], 1, size);
    }
    qsort(s.block, s.n, sizeof *s.block, by_address);
    return s;
}

/* Counts no page twice, though blocks share some. */
static size_t resident(const struct touched *s)
{
    static unsigned char each[16 * HAK_MIB / HAK_SYSTEM_PAGE];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 0;
    uintptr_t from = 0;
    for (size_t i = 0; i < s->n; i++) {
        uintptr_t begin = (uintptr_t)s->block[i], end = hak_align_up(begin + s->size, page);
        from = hak_max(begin & ~(page - 1), from);
        if (from < end && !mincore((void *)from, end - from, each)) /* else not mapped any more */
            for (size_t k = 0; k < (end - from) / page; k++)
                bytes += each[k] & 1 ? page : 0;
        from = hak_max(from, end);
    }
    return bytes;
}

static void assert_resident(const struct touched *s, size_t most, const char *when)
{
    size_t now = resident(s);
    if (now > most)
        fail_msg("%zu KiB of %zu KiB in %zu-byte blocks are resident %s, more than %zu", now / HAK_KIB,
                 s->n * s->size / HAK_KIB, s->size, when, most / HAK_KIB);
}

#endif
