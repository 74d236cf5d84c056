/* SPDX-License-Identifier: MIT
 * So many bytes of touched blocks of one kind of size, as a list through the blocks themselves. */
#ifndef TESTS_MEMORY_BLOCKS_H
#define TESTS_MEMORY_BLOCKS_H

#include "resident.h"

struct block {
    struct block *next;
};

static inline size_t blocks_size(const char *kind, uint64_t *random)
{
    uint64_t r = next_random(random);
    char what = kind[0];
    if (what == 'm')
        what = r % 4096 == 0 ? 'l' : r % 4096 < 64 ? 'p' : 's';
    r >>= 12;
    if (what == 's')
        return 16 + r % 2032;
    return what == 'p' ? 8 * KIB + r % (44 * KIB) : 64 * KIB + r % (4032 * KIB);
}

static inline struct block *blocks_take(const char *kind, size_t bytes)
{
    struct block *blocks = NULL;
    uint64_t random = 42;
    for (size_t taken = 0; taken < bytes;) {
        size_t size = blocks_size(kind, &random);
        struct block *b = malloc(size);
        if (!b)
            die("malloc(%zu) returned NULL", size);
        mark(b, size, 1);
        b->next = blocks;
        blocks = b;
        taken += size;
    }
    return blocks;
}

static inline void blocks_free(struct block *blocks)
{
    for (struct block *next; blocks; blocks = next) {
        next = blocks->next;
        free(blocks);
    }
}

#endif
