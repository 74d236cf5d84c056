/* SPDX-License-Identifier: MIT
 *
 * A map of the memory that is in use, kept beside the allocator: one bit for
 * each 16 bytes and one word for each 4 KiB of the address space, in sparse
 * tables from mmap. Claiming an extent that any thread has claimed and not
 * released ends the process. Lock-free; any thread may call.
 */
#ifndef TESTS_STRESS_SHADOW_H
#define TESTS_STRESS_SHADOW_H

#include "../limits/check.h"

/* p is aligned to 16; the last 16 bytes count whole. */
void shadow_claim(const void *p, size_t size);
void shadow_release(const void *p, size_t size);

/* One line on stderr, then abort. */
#define stress_fail(...)  \
    do {                  \
        say(__VA_ARGS__); \
        abort();          \
    } while (0)

#endif
