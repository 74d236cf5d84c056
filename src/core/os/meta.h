/* SPDX-License-Identifier: MIT
 * Memory for the library's own structures: zeroed, cache-line aligned, never unmapped, apart from all blocks.
 * Descriptors that come and go are recycled by a list for each type. */
#ifndef HAK_META_H
#define HAK_META_H

#include <string.h>

#include "core/base/lock.h"

/* NULL when the system has none. Any thread. */
void *hak_meta_alloc(size_t size);
/* Whole pages of the system, which share none with other structures: who has them may let the kernel have their content.
 * Zeroed, unless they were given back before. */
void *hak_meta_alloc_pages(size_t size);
/* Gives back what the function above returned for this size. */
void hak_meta_free_pages(void *pages, size_t size);
/* The first memory to hand out: zeroed and writable. From hak_space_init. */
void hak_meta_give(void *chunk, size_t size);
size_t hak_meta_bytes(void);

/* Descriptors of one type that are not used any more, for the next that is needed; the lock is the user's own. All zero:
 * none yet. The first word of each is the link. */
struct hak_meta_list {
    void *top;
};

/* A zeroed descriptor; NULL when the system has no memory. */
HAK_INLINE void *hak_meta_new(struct hak_meta_list *recycled, size_t size)
{
    void *descriptor = recycled->top;
    if (!descriptor)
        return hak_meta_alloc(size);
    recycled->top = *(void **)descriptor;
    return memset(descriptor, 0, size);
}

HAK_INLINE void hak_meta_recycle(struct hak_meta_list *recycled, void *descriptor)
{
    *(void **)descriptor = recycled->top;
    recycled->top = descriptor;
}

extern struct hak_lock hak_meta_lock;

#endif
