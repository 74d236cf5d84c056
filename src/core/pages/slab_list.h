/* SPDX-License-Identifier: MIT
 * A list of slabs in both directions, for one thread or under one lock; `listed` tells whether a slab stands on
 * one. A slab stands on one list at most. */
#ifndef HAK_SLAB_LIST_H
#define HAK_SLAB_LIST_H

#include "core/base/list.h"
#include "slab.h"

HAK_INLINE void hak_slab_list_push(struct hak_slab **list, struct hak_slab *slab)
{
    HAK_LIST_PUSH(list, slab);
    slab->listed = true;
}

HAK_INLINE void hak_slab_list_remove(struct hak_slab **list, struct hak_slab *slab)
{
    HAK_LIST_REMOVE(list, slab);
    slab->listed = false;
}

#endif
