/* SPDX-License-Identifier: MIT
 * realloc: in place, moved without copying, or copied. */
#ifndef HAK_RESIZE_H
#define HAK_RESIZE_H

#include "aligned.h"
#include "core/pages/zero.h"
#include "fast.h"

/* Bytes that the program may use of a small block; 0 where p may be none, which hak_resize_slow decides. */
HAK_INLINE size_t hak_resize_usable(const void *p)
{
    uint64_t cls = HAK_HEADER_LIMIT ? hak_class_of_block(hak_cache_here(), p) : hak_tag_class(p);
    if (HAK_UNLIKELY(cls >= HAK_NCLASSES || !hak_class_starts_at(cls, p)))
        return 0;
    hak_mark_check(p, (unsigned)cls, "realloc");
    return hak_class_usable((unsigned)cls);
}

/* Whether a block of that size stays where it is: it is large enough, and not much too large. */
HAK_INLINE bool hak_resize_fits(size_t usable, size_t size)
{
    return size - 1 < usable && (usable - size <= usable / (usable <= 2048 ? 2 : 4) || usable <= 64);
}

/* Handles each block that moves, or whose cut-off part is cleared. `usable`: of hak_resize_usable. Sets errno. */
HAK_NOINLINE void *hak_resize_slow(void *p, size_t size, size_t usable);

/* Allocates in the arena of `slab`, or in none (NULL), whatever the thread's default arena is. */
void *hak_alloc_beside(struct hak_slab *slab, size_t size, size_t align);

/* Makes a live block longer where it is; false: it cannot, and nothing has changed. */
bool hak_expand(void *p, size_t size);

/* p: a live block; size: not 0. NULL without memory for more than it has, or above PTRDIFF_MAX: the old block is
 * untouched. */
HAK_INLINE void *hak_resize(void *p, size_t size)
{
    size_t usable = hak_resize_usable(p);
    bool zeroes = HAK_HARDENED && HAK_UNLIKELY(hak_zeroes_on_free());
    return HAK_LIKELY(hak_resize_fits(usable, size) && !zeroes) ? p : hak_resize_slow(p, size, usable);
}

#endif
