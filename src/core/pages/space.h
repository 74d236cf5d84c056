/* SPDX-License-Identifier: MIT
 * The address space, up to 2^40 bytes, handed out as superslabs of its zones (zones.h). Only free superslabs are
 * unmapped, by a trim under a limit on the address space: no tag names them, and the kernel places no mapping at
 * planned addresses unless a program asks for them. */
#ifndef HAK_SPACE_H
#define HAK_SPACE_H

#include "lookup.h"

/* Contiguous superslabs, aligned to `align` superslabs (a power of two), readable and writable: at least `least`, and
 * at most *superslabs, which becomes their number. NULL if there are none, and then nothing has changed. Pages that
 * were not handed out before read as zero. `header`: from the zone for blocks with a header byte, which is one range;
 * if that is full, callers use slabs without headers. */
void *hak_space_alloc_most(size_t *superslabs, size_t least, size_t align, bool header);
HAK_INLINE void *hak_space_alloc(size_t superslabs, size_t align, bool header)
{
    return hak_space_alloc_most(&superslabs, superslabs, align, header);
}
/* Takes back superslabs whose pages were purged. Pages that were purged lazily are now purged eagerly, for `cause`; if
 * the kernel refuses, the superslabs are never used again. */
void hak_space_free(void *base, size_t superslabs, enum hak_cause cause);
/* Unmaps free superslabs, if the address space is limited. */
void hak_space_trim(void);

struct hak_space_stats {
    size_t mapped, handed_out, zones;
};
void hak_space_stats(struct hak_space_stats *stats);

#endif
