/* SPDX-License-Identifier: MIT
 * What the cache `array` keeps in a bin, and in a heap, where it stays when the heap is recycled. */
#ifndef HAK_CACHE_LAYOUT_H
#define HAK_CACHE_LAYOUT_H

#include "core/base/sizeclass.h"

struct hak_cache_bin {
    void **slots;      /* the bin: the first one is NULL, then block by block, the one freed last at the end */
    uint16_t given;    /* the room that it got last */
    uint16_t steady;   /* with fewer blocks the bin has slots for the frees until the next tick, and is not checked */
    uint8_t later;     /* ticks until its next check */
    uint8_t slots_lg;  /* log2 of the number of the bin's slots */
    uint8_t remote_lg; /* log2 of the number of slots of the remote cache; 0 without any */
};

#define HAK_SLOTS_LG_MAX 13u /* log2 of the longest array, which holds the largest capacity that a setting allows */

struct hak_cache_heap {
    void **spare[HAK_SLOTS_LG_MAX + 1]; /* outgrown arrays, by log2 of their length; slot 0 is the link */
    struct hak_slots_region *regions;   /* regions from which slots are cut, the newest first */
    uint32_t first_bytes;               /* the length of the oldest region */
    uint32_t refused;                   /* requests still to be refused at once */
};

typedef void **hak_remote_blocks; /* NULL: there is no array yet */

extern HAK_HIDDEN void *const hak_cache_no_slots[1]; /* the end of bins without slots */
#define HAK_NO_BIN ((void *)hak_cache_no_slots)

#endif
