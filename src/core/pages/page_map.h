/* SPDX-License-Identifier: MIT
 * The part of space.c that the fast path needs, in one cache line: the mapped part of the first zone and the table of
 * descriptors, which resolve an address; in hardened builds also the checks of links. space.c fills it in. */
#ifndef HAK_PAGE_MAP_H
#define HAK_PAGE_MAP_H

#include "core/base/words.h"

struct hak_slab;

struct hak_page_map {
    struct hak_slab *descriptors;
    uint64_t rotation, mask; /* index of a page's descriptor: (number + rotation) & mask */
    uintptr_t base;
    _Atomic(size_t) size;                /* grows */
    _Atomic(size_t) units[HAK_HARDENED]; /* the size in units of 16 bytes, at which a block may begin */
};
extern HAK_HIDDEN struct hak_page_map hak_page_map;

/* The caller has mapped `size` bytes, and their descriptors. */
HAK_INLINE void hak_page_map_grow(size_t size)
{
    if (HAK_HARDENED)
        HAK_STORE_RELAXED(hak_page_map.units, size / 16);
    HAK_STORE_RELAXED(&hak_page_map.size, size);
}

/* Hardened builds: stops the process unless a block may begin at `next`, to which the link of `block` leads. */
HAK_COLD void hak_space_check_link(const void *block, const void *next);
/* Stops the process: the free block `block` was overwritten. */
HAK_COLD _Noreturn void hak_space_fail_link(const void *block);

#endif
