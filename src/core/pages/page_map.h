/* SPDX-License-Identifier: MIT
 * What the fast path needs of space.c, which makes it: the lookup of an address, in one cache line, with the mapped part
 * of the first zone and the descriptors; in hardened builds, what stops the process at a link that leads astray. */
#ifndef HAK_PAGE_MAP_H
#define HAK_PAGE_MAP_H

#include "core/base/words.h"

struct hak_slab;

struct hak_page_map {
    struct hak_slab *descriptors;
    uint64_t rotation, mask; /* index of a page's descriptor: (number + rotation) & mask */
    uintptr_t base;
    _Atomic(size_t) size; /* grows */
    _Atomic(size_t) units[HAK_HARDENED]; /* the same in places where a block may begin */
};
extern HAK_HIDDEN struct hak_page_map hak_page_map;

/* The caller has mapped so much, and its descriptors. */
HAK_INLINE void hak_page_map_grow(size_t size)
{
    if (HAK_HARDENED)
        HAK_STORE_RELAXED(hak_page_map.units, size / 16);
    HAK_STORE_RELAXED(&hak_page_map.size, size);
}

/* In hardened builds. Stops the process unless a block may begin at `next`, where the link of `block` leads. */
HAK_COLD void hak_space_check_link(const void *block, const void *next);
/* `block`, which is free, is not as free left it. */
HAK_COLD _Noreturn void hak_space_fail_link(const void *block);

#endif
