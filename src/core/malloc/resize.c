/* SPDX-License-Identifier: MIT
 * See resize.h. */
#include "resize.h"

#include <string.h>

#include "arenas.h"
#include "block.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/process/maintenance.h"

HAK_OPTIONAL(hak_arena_alloc);
HAK_OPTIONAL(hak_arena_expand);
HAK_OPTIONAL(hak_arena_free);
HAK_OPTIONAL(hak_default_set);

void *hak_alloc_beside(struct hak_slab *slab, size_t size, size_t align)
{
    struct hak_arena *a = hak_arena_of(slab), *before = NULL;
    if (a)
        return hak_arena_alloc(a, size, align, false);
    if (hak_suspended)
        before = hak_default_set(NULL);
    void *p = align <= 16 ? hak_malloc(size) : hak_alloc_aligned(align, size);
    if (before)
        hak_default_set(before);
    return p;
}

/* A block that shrinks stays where it is if no smaller one is available: shrinking never fails. */
static void *move(void *p, size_t usable, size_t size)
{
    void *q = HAK_UNLIKELY(hak_suspended) ? hak_alloc_beside(NULL, size, 1) : hak_malloc(size);
    if (!q) {
        hak_block_note_larger();
        return size <= usable ? p : NULL;
    }
    memcpy(q, p, hak_min(usable, size));
    hak_free(p);
    return q;
}

/* The block stays where it is. Hardened builds clear the part that is cut off, if asked to. */
static void *stay_in_place(void *p, size_t usable, size_t size)
{
    if (hak_zeroes_on_free())
        memset((char *)p + size, 0, usable - size);
    return p;
}

static HAK_COLD void *refuse_to_grow(void)
{
    errno = ENOMEM;
    return NULL;
}

static bool allows_more(size_t bytes)
{
    return HAK_LIKELY(hak_budget_is_possible(bytes)) || hak_make_room(bytes);
}

bool hak_expand(void *p, size_t size)
{
    size_t usable = hak_resize_usable(p);
    struct hak_slab *slab = usable ? NULL : hak_space_slab(p);
    if (!usable)
        usable = hak_block_usable_in(slab, p, "expand");
    if (size <= usable)
        return true;
    if (hak_arena_of(slab))
        return size <= PTRDIFF_MAX && hak_arena_expand(slab, p, size);
    bool is_small = usable <= HAK_SMALL_MAX || size > PTRDIFF_MAX;
    return !is_small && allows_more(size - usable) && hak_parts.spans->span_expand(slab, p, size);
}

/* The block stays in its arena. */
static void *resize_in_arena(struct hak_slab *slab, void *p, size_t usable, size_t size)
{
    bool fits = hak_resize_fits(usable, size);
    if (fits || (size > HAK_SMALL_MAX && hak_arena_expand(slab, p, size))) {
        if (fits && hak_zeroes_on_free())
            memset((char *)p + size, 0, usable - size);
        return p;
    }
    void *q = hak_arena_alloc(hak_arena_of(slab), size, 1, false);
    if (!q) {
        hak_block_note_larger();
        return size <= usable ? p : NULL;
    }
    memcpy(q, p, hak_min(usable, size));
    hak_arena_free(slab, p);
    return q;
}

static void *resize_span(void *p, size_t size)
{
    struct hak_slab *slab = hak_space_slab(p);
    size_t usable = hak_block_usable_in(slab, p, "realloc");
    if (HAK_UNLIKELY(hak_arena_of(slab)))
        return resize_in_arena(slab, p, usable, size);
    if (size > HAK_SMALL_MAX && usable - size < hak_min(usable / 32, HAK_PAGE)) /* there is little to give back */
        return stay_in_place(p, usable, size);
    if (slab && hak_block_in_slab(slab))
        return hak_resize_fits(usable, size) ? stay_in_place(p, usable, size) : move(p, usable, size);
    if (size > usable && slab && !hak_budget_is_possible(size)) { /* if a span moves, both blocks exist for a while */
        if (hak_expand(p, size))
            return p;
        return allows_more(size) ? move(p, usable, size) : refuse_to_grow();
    }
    if (size > usable && !allows_more(size - usable))
        return refuse_to_grow();
    void *q = size > HAK_SMALL_MAX ? hak_parts.spans->span_resize(slab, p, size) : NULL;
    if (!q)
        return move(p, usable, size);
    hak_work_add(HAK_SPAN_WORK);
    hak_maintain();
    return q;
}

void *hak_resize_slow(void *p, size_t size, size_t usable)
{
    if (HAK_LIKELY(size <= PTRDIFF_MAX)) {
        if (!usable)
            return resize_span(p, size);
        return hak_resize_fits(usable, size) ? stay_in_place(p, usable, size) : move(p, usable, size);
    }
    return refuse_to_grow();
}
