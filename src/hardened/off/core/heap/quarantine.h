/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/heap/quarantine.h. */
#ifndef HAK_QUARANTINE_H
#define HAK_QUARANTINE_H

#include "core/heap/heap.h"

HAK_INLINE bool hak_quarantine_is_on(void)
{
    return false;
}

HAK_INLINE bool hak_quarantine_keep(struct hak_heap *heap, unsigned cls, void *p)
{
    (void)heap, (void)cls, (void)p;
    return false;
}

HAK_INLINE void hak_quarantine_flush(struct hak_heap *heap)
{
    (void)heap;
}

HAK_INLINE size_t hak_quarantine_bytes(const struct hak_heap *heap)
{
    (void)heap;
    return 0;
}

#endif
