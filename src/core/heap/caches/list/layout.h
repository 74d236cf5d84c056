/* SPDX-License-Identifier: MIT
 * What the cache `list` keeps. See heap/caches/layout.h. */
#ifndef HAK_CACHES_LIST_LAYOUT_H
#define HAK_CACHES_LIST_LAYOUT_H

#define HAK_CACHE_FIELDS                               \
    void *bin[HAK_NCLASSES];     /* its first block */ \
    uint64_t room[HAK_NCLASSES]; /* frees until the next tick */

#define HAK_BIN_FIELDS                                \
    uint16_t interval; /* frees between two checks */ \
    uint16_t later;    /* frees beyond the next tick until the next check */

#define HAK_HEAP_FIELDS

#define HAK_NO_BIN NULL

typedef void *hak_remote_blocks; /* a list */

#endif
