/* SPDX-License-Identifier: MIT
 * The slabs that a thread owns, for bin.c and drain.c: a list for each bin, its first slab the one that refills
 * use. By the thread itself, or by who has taken it from the parked ones. */
#ifndef HAK_OWNED_H
#define HAK_OWNED_H

#include "slab_list.h"
#include "thread.h"

HAK_INLINE void hak_owned_mark_used(struct hak_thread *t, unsigned bin)
{
    t->used_bins[bin / 64] |= (uint64_t)1 << bin % 64;
}

HAK_INLINE void hak_owned_count(struct hak_thread *t, int change)
{
    uint64_t n = atomic_load_explicit(&t->slabs, memory_order_relaxed);
    atomic_store_explicit(&t->slabs, n + (uint64_t)(int64_t)change, memory_order_relaxed);
}

HAK_INLINE void hak_owned_add(struct hak_thread *t, struct hak_slab *slab)
{
    hak_owned_mark_used(t, slab->bin);
    hak_slab_list_push(&t->bins[slab->bin].slabs, slab);
    hak_owned_count(t, 1);
}

HAK_INLINE void hak_owned_remove(struct hak_thread *t, struct hak_slab *slab)
{
    hak_slab_list_remove(&t->bins[slab->bin].slabs, slab);
    hak_owned_count(t, -1);
}

/* A slab without a block away goes back to its frontend. In drain.c. */
void hak_owned_release(struct hak_thread *t, struct hak_slab *slab);

#endif
