/* SPDX-License-Identifier: MIT
 * What the cache `list` keeps. */
#ifndef HAK_CACHE_LAYOUT_H
#define HAK_CACHE_LAYOUT_H

#include "core/base/sizeclass.h"

struct hak_cache_bin {
    uint16_t interval; /* frees between two checks */
    uint16_t later;    /* frees beyond the next tick until the next check */
};

struct hak_cache_heap {
};

#define HAK_NO_BIN NULL

typedef void *hak_remote_blocks; /* a list */

#endif
