/* SPDX-License-Identifier: MIT
 * Where mallocx gets its blocks: from the heap of the arena that the flags name, or else from malloc. A heap has no
 * block of 4 GiB. */
#ifndef HAK_FLAGS_H
#define HAK_FLAGS_H

#include <stdlib.h>

#include "compat/jemalloc/jemalloc.h"

static inline hakmem_heap *flags_heap(int flags, size_t size)
{
    unsigned arena = (unsigned)flags >> 20; /* 0: none is named; 1: the first, which has no heap */
    return arena > 1 && size < (size_t)1 << 31 ? je_arena_heap(arena - 1) : NULL;
}

static inline void *flags_malloc(int flags, size_t size)
{
    hakmem_heap *heap = flags_heap(flags, size);
    return heap ? je_counted(hakmem_heap_malloc(heap, size)) : malloc(size);
}

static inline void *flags_calloc(int flags, size_t size)
{
    hakmem_heap *heap = flags_heap(flags, size);
    return heap ? je_counted(hakmem_heap_calloc(heap, 1, size)) : calloc(1, size);
}

static inline void *flags_aligned(int flags, size_t align, size_t size)
{
    hakmem_heap *heap = flags_heap(flags, size);
    return heap ? je_counted(hakmem_heap_aligned_alloc(heap, align, size)) : aligned_alloc(align, size);
}

#endif
