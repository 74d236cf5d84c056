/* SPDX-License-Identifier: MIT
 * Blocks that are zeroed, or aligned to more than 16 bytes. NULL and errno without memory, or above PTRDIFF_MAX. */
#ifndef HAK_ALIGNED_H
#define HAK_ALIGNED_H

#include <string.h>

#include "fast.h"

HAK_INLINE void *hak_alloc_zeroed(size_t size)
{
    void *p = hak_try_malloc(size);
    return HAK_LIKELY(p) ? memset(p, 0, size) : hak_alloc_zeroed_slow(size);
}

/* align: a power of two. */
HAK_INLINE void *hak_alloc_aligned(size_t align, size_t size)
{
    if (align <= 16)
        return hak_malloc(size);
    unsigned cls = hak_class_of_rounded(align, size);
    void *p = HAK_LIKELY(cls < HAK_NCLASSES && !(hak_strides[cls] & (align - 1))) ? hak_pop(cls) : NULL;
    return HAK_LIKELY(p) ? p : hak_alloc_aligned_slow(align, size);
}

#endif
