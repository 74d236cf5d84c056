/* SPDX-License-Identifier: MIT
 * See resize.h. */
#include "resize.h"

#include <string.h>

#include "block.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/process/maintenance.h"
#include "fast.h"

static bool fits_in_place(size_t usable, size_t size)
{
    return size <= usable && (size >= usable / 2 || usable <= 64);
}

/* A block that shrinks stays where it is if no smaller one is available: shrinking never fails. */
static void *move(void *p, size_t usable, size_t size)
{
    void *q = hak_malloc(size);
    if (!q)
        return size <= usable ? p : NULL;
    memcpy(q, p, hak_min(usable, size));
    hak_free(p);
    return q;
}

static void *resize_slowly(void *p, size_t size)
{
    size_t usable = hak_block_usable(p, "realloc");
    struct hak_slab *slab = hak_space_slab(p);
    if (slab && hak_block_in_slab(slab))
        return fits_in_place(usable, size) ? p : move(p, usable, size);
    void *q = size > HAK_SMALL_MAX ? hak_parts.spans->span_resize(slab, p, size) : NULL;
    if (!q)
        return move(p, usable, size);
    hak_work_add(HAK_SPAN_WORK);
    hak_maintain();
    return q;
}

void *hak_resize(void *p, size_t size)
{
    uint64_t cls = HAK_HEADER_LIMIT ? hak_class_of_block(hak_cache_here(), p) : hak_tag_class(p);
    if (size > PTRDIFF_MAX)
        return NULL;
    if (HAK_UNLIKELY(cls >= HAK_NCLASSES || !hak_class_starts_at(cls, p)))
        return resize_slowly(p, size);
    size_t usable = hak_class_usable((unsigned)cls);
    hak_mark_check(p, (unsigned)cls, "realloc");
    return fits_in_place(usable, size) ? p : move(p, usable, size);
}
