/* SPDX-License-Identifier: MIT
 * Sizes on both sides of each border: header classes, tiny, pool, spans, superslabs, direct mappings. */
#ifndef TESTS_UNIT_SIZES_H
#define TESTS_UNIT_SIZES_H

#include <stddef.h>

static const size_t sizes[] = {
    0,    1,     15,    16,    17,    63,     64,      100,     960,           1024,     4096,    7681,
    8192, 52000, 53248, 53249, 65536, 100000, 1 << 20, 3 << 20, (3 << 20) + 1, 33 << 20, 65 << 20};

#endif
