/* SPDX-License-Identifier: MIT
 * What the cache `array` keeps. See heap/caches/layout.h. */
#ifndef HAK_CACHES_ARRAY_LAYOUT_H
#define HAK_CACHES_ARRAY_LAYOUT_H

#include "core/heap/caches/slots/layout.h"

#define HAK_CACHE_FIELDS                                          \
    void *bin[HAK_NCLASSES];     /* the slot of its last block */ \
    uint64_t room[HAK_NCLASSES]; /* frees until the next tick */

#define HAK_BIN_FIELDS                                                                                                 \
    uint8_t remote_lg; /* log2 of the number of slots of the remote cache; 0 without any */                            \
    uint8_t slots_lg;  /* log2 of the number of the bin's slots */                                                     \
    uint8_t later;     /* ticks until its next check */                                                                \
    uint16_t given;    /* the room that it got last */                                                                 \
    uint16_t steady;   /* with fewer blocks the bin has slots for the frees until the next tick, and is not checked */ \
    void **slots;      /* the bin: the first one is NULL, then block by block, the one freed last at the end */

#define HAK_HEAP_FIELDS HAK_HEAP_SLOTS_FIELDS

extern HAK_HIDDEN void *const hak_cache_no_slots[1]; /* the end of bins without slots */
#define HAK_NO_BIN ((void *)hak_cache_no_slots)

#endif
