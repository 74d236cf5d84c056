/* SPDX-License-Identifier: MIT
 * Memory for the library's own structures: zeroed, cache-line aligned, never given back, apart from all blocks.
 * Descriptors that come and go are recycled by a list for each type. */
#ifndef HAK_META_H
#define HAK_META_H

#include <string.h>

#include "base.h"

/* NULL when the system has none. Any thread. */
void *hak_meta_alloc(size_t size);
/* The first memory to hand out: zeroed and writable. From hak_space_init. */
void hak_meta_give(void *chunk, size_t size);
size_t hak_meta_bytes(void);

/* Descriptors of one type that were dropped, for the next that is needed; the lock is the user's own. All zero:
 * none yet. The first word of a dropped one is the link. */
struct hak_meta_list {
    void *top;
};

/* A zeroed descriptor; NULL when the system has no memory. */
HAK_INLINE void *hak_meta_new(struct hak_meta_list *dropped, size_t size)
{
    void *descriptor = dropped->top;
    if (!descriptor)
        return hak_meta_alloc(size);
    dropped->top = *(void **)descriptor;
    return memset(descriptor, 0, size);
}

HAK_INLINE void hak_meta_drop(struct hak_meta_list *dropped, void *descriptor)
{
    *(void **)descriptor = dropped->top;
    dropped->top = descriptor;
}

extern struct hak_lock hak_meta_lock;

#endif
