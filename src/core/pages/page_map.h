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
};
extern HAK_HIDDEN struct hak_page_map hak_page_map;

#endif
