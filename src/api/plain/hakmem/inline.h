/* SPDX-License-Identifier: MIT
 * hakmem: the functions of src/api/hakmem/inline.h as plain calls, for builds that check each call (cpu, hardened,
 * valgrind, stats, sanitizers). */
#ifndef HAKMEM_INLINE_H
#define HAKMEM_INLINE_H

#include <hakmem.h>

static inline __attribute__((__unused__)) void *hakmem_inline_malloc(size_t size)
{
    return hakmem_malloc(size);
}

__attribute__((__nonnull__, __unused__)) static inline void hakmem_inline_free(void *ptr, size_t size)
{
    (void)size;
    hakmem_free(ptr);
}

#endif
