/* SPDX-License-Identifier: MIT
 * What the fast path needs of the zones, in one cache line: the mapped part of the first zone and the table of
 * descriptors, which resolve an address. zones.c fills it in. */
#ifndef HAK_PAGE_MAP_H
#define HAK_PAGE_MAP_H

#include "descriptor.h"

struct hak_page_map {
    struct hak_slab *descriptors;
    uint64_t rotation, mask; /* index of a page's descriptor: (number + rotation) & mask */
    uintptr_t base;
    _Atomic(size_t) size;                /* grows */
    _Atomic(size_t) units[HAK_HARDENED]; /* the size in units of 16 bytes, at which a block may begin */
};
extern HAK_HIDDEN struct hak_page_map hak_page_map;

/* The descriptor of the 64 KiB page of an address that lies in a zone. */
HAK_INLINE struct hak_slab *hak_page_at(const void *p)
{
    return &hak_page_map.descriptors[(((uintptr_t)p >> HAK_PAGE_LG) + hak_page_map.rotation) & hak_page_map.mask];
}

/* The caller has mapped `size` bytes, and their descriptors. */
HAK_INLINE void hak_page_map_grow(size_t size)
{
    if (HAK_HARDENED)
        HAK_STORE_RELAXED(hak_page_map.units, size / 16);
    HAK_STORE_RELAXED(&hak_page_map.size, size);
}

#endif
