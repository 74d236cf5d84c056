/* SPDX-License-Identifier: MIT
 * See cache.h. */
#include "cache.h"

HAK_THREAD_LOCAL struct hak_cache hak_self = {
    .tag = HAK_CPU_HEAPS ? HAK_TAG_SHARED : HAK_TAG_NOBODY,
    .bin = {[0 ... HAK_NCLASSES - 1] = HAK_NO_BIN},
    .room = {[0 ... HAK_NCLASSES - 1] = HAK_ROOM_NEVER},
};

HAK_THREAD_LOCAL struct hak_cache *hak_suspended;

/* Declared as in hakmem/inline.h, since LTO compares the types. src/api/inline.c checks the offsets. */
struct hakmem_inline_bins {
    uint64_t owner;
    void *bin[HAK_NCLASSES];
    uint64_t room[HAK_NCLASSES];
};
extern HAK_HIDDEN HAK_THREAD_LOCAL struct hakmem_inline_bins HAK_INLINE_NAME __attribute__((alias("hak_self")));
