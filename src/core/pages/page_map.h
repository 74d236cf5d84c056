/* SPDX-License-Identifier: MIT
 * What the lookup of an address needs, in one cache line: the mapped part of the first zone, and the descriptors.
 * space.c makes it. */
#ifndef HAK_PAGE_MAP_H
#define HAK_PAGE_MAP_H

#include "core/base/words.h"

struct hak_slab;

struct hak_page_map {
    struct hak_slab *descriptors;
    uint64_t rotation, mask; /* index of a page's descriptor: (number + rotation) & mask */
    uintptr_t base;
    _Atomic(size_t) size; /* grows */
#if HAK_HARDENED
    _Atomic(size_t) units; /* the same in places where a block may begin */
#endif
};
extern HAK_HIDDEN struct hak_page_map hak_page_map;

/* The caller has mapped so much, and its descriptors. */
HAK_INLINE void hak_page_map_grow(size_t size)
{
#if HAK_HARDENED
    HAK_STORE_RELAXED(&hak_page_map.units, size / 16);
#endif
    HAK_STORE_RELEASE(&hak_page_map.size, size);
}

#endif
