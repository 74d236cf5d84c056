/* SPDX-License-Identifier: MIT
 * See aligned.h. */
#include "aligned.h"

#include <string.h>

#include "fast.h"

void *hak_alloc_zeroed(size_t size)
{
    if (size > HAK_SMALL_MAX)
        return hak_alloc_span(size, 1, true);
    void *p = hak_malloc(size);
    return p ? memset(p, 0, size) : NULL;
}

void *hak_alloc_aligned(size_t align, size_t size)
{
    if (align <= 16)
        return hak_malloc(size);
    unsigned cls = hak_class_of_aligned(align, size);
    void *p = NULL;
    if (HAK_LIKELY(cls < HAK_NCLASSES) && HAK_UNLIKELY(!(p = hak_pop(cls))))
        p = hak_alloc_class(cls);
    return HAK_LIKELY(p) ? p : hak_alloc_span(size, align, false); /* also if no slab of the class is available */
}
