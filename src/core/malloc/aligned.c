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

/* The smallest class whose blocks are all aligned: slabs begin at 64 KiB, so a stride that is a multiple does. */
static unsigned aligned_class(size_t align, size_t size)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (hak_strides[cls] % align == 0 && hak_class_usable(cls) >= size)
            return cls;
    return HAK_NCLASSES;
}

void *hak_alloc_aligned(size_t align, size_t size)
{
    if (align <= 16)
        return hak_malloc(size);
    unsigned cls = size <= HAK_SMALL_MAX && align <= HAK_PAGE ? aligned_class(align, size) : HAK_NCLASSES;
    void *p = cls < HAK_NCLASSES ? hak_alloc_class(cls) : NULL;
    return p ? p : hak_alloc_span(size, align, false); /* also where no slab of the class is to be had, as in malloc */
}
