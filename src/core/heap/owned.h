/* SPDX-License-Identifier: MIT
 * The slabs that a heap owns: a list for each class, whose first slab serves refills. Only the heap's owner calls these
 * functions, or the thread that dissolves the heap. */
#ifndef HAK_OWNED_H
#define HAK_OWNED_H

#include "core/pages/slab_list.h"
#include "heap.h"

/* The most 64 KiB pages of slabs behind a bin. Blocks that other threads free wait for the slab's owner, which may
 * never use the class again; so slabs beyond the limit have no owner, and become EMPTY by remote frees alone. */
#define HAK_OWNED_PAGES 64u

HAK_INLINE bool hak_owned_has_room(const struct hak_heap *heap, const struct hak_slab *slab)
{
    return heap->bins[slab->cls].owned_pages + slab->pages <= HAK_OWNED_PAGES;
}

HAK_INLINE void hak_owned_mark_used(struct hak_heap *heap, unsigned cls)
{
    heap->used_classes[cls / 64] |= (uint64_t)1 << cls % 64;
}

HAK_INLINE void hak_owned_count(struct hak_heap *heap, int change)
{
    HAK_STORE_RELAXED(&heap->slabs, HAK_LOAD_RELAXED(&heap->slabs) + (uint64_t)(int64_t)change);
}

HAK_INLINE void hak_owned_add(struct hak_heap *heap, struct hak_slab *slab)
{
    hak_owned_mark_used(heap, slab->cls);
    hak_slab_list_push(&heap->bins[slab->cls].slabs, slab);
    heap->bins[slab->cls].owned_pages += slab->pages;
    hak_owned_count(heap, 1);
}

HAK_INLINE void hak_owned_remove(struct hak_heap *heap, struct hak_slab *slab)
{
    hak_slab_list_remove(&heap->bins[slab->cls].slabs, slab);
    heap->bins[slab->cls].owned_pages -= slab->pages;
    hak_owned_count(heap, -1);
}

/* Releases a slab without allocated blocks to its frontend. */
void hak_owned_release(struct hak_heap *heap, struct hak_slab *slab);

#endif
