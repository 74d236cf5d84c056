/* SPDX-License-Identifier: MIT
 * See share.h. */
#include "share.h"

#include "core/parts/parts.h"

#define USES_MAX 4096u   /* however many threads there are */
#define BATCH_BYTES 384u /* taken by a refill, or one block */
#define KEEP_BYTES 384u  /* kept of a class, or one block */

_Atomic(uint32_t) hak_share_uses;

void hak_share_set_heaps(uint32_t live)
{
    uint64_t others = live ? live - 1 : 0;
    HAK_STORE_RELAXED(&hak_share_uses, (uint32_t)hak_min(others * others, USES_MAX));
}

uint32_t hak_share_capacity(unsigned cls)
{
    return hak_strides[cls] > HAK_SHARE_STRIDE_LARGE ? 0 : (uint32_t)hak_max(1, KEEP_BYTES / hak_strides[cls]);
}

/* A PARTIAL slab first: an EMPTY one would become one more slab that is hardly used. */
static struct hak_slab *acquire(struct hak_heap *heap, unsigned cls, bool may_grow)
{
    struct hak_slab *slab = hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_PARTIAL);
    return slab || !may_grow ? slab : hak_parts_acquire_slab(heap, cls);
}

struct hak_slab *hak_share_open(struct hak_heap *heap, unsigned cls, bool may_grow)
{
    struct hak_slab *slab = acquire(heap, cls, may_grow);
    if (slab)
        hak_slab_tag(slab, HAK_TAG_SHARED);
    return slab;
}

uint32_t hak_share_batch(unsigned cls, uint32_t want)
{
    return (uint32_t)hak_min(want, hak_max(1, BATCH_BYTES / hak_strides[cls]));
}

void hak_share_close(struct hak_slab *slab)
{
    if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
        hak_parts.backend->release_slab(slab);
}
