/* SPDX-License-Identifier: MIT
 * Metadata: memory for the library's own structures. It is zeroed, cache-line aligned, never unmapped, and apart from
 * all blocks. Descriptors are recycled through a list for each type. */
#ifndef HAK_META_H
#define HAK_META_H

#include "core/base/lock.h"
#include "core/base/text.h"

/* NULL when the system has none. Any thread. */
void *hak_meta_alloc(size_t size);
/* Whole system pages, shared with no other structure, so that the caller may purge them. Zeroed, unless they were freed
 * before. */
void *hak_meta_alloc_pages(size_t size);
/* Frees what hak_meta_alloc_pages returned for this size. */
void hak_meta_free_pages(void *pages, size_t size);
/* Supplies the first memory to hand out: zeroed and writable. Called by hak_space_init. */
void hak_meta_give(void *chunk, size_t size);

size_t hak_meta_bytes(void);

/* Unused descriptors of one type, for reuse. The caller provides the lock. All zero: empty. The first word of each
 * descriptor is the link. */
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
    hak_fill(descriptor, 0, size);
    return descriptor;
}

HAK_INLINE void hak_meta_recycle(struct hak_meta_list *recycled, void *descriptor)
{
    *(void **)descriptor = recycled->top;
    recycled->top = descriptor;
}

extern struct hak_lock hak_meta_lock;

#endif
