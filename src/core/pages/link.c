/* SPDX-License-Identifier: MIT
 * See link.h. Hardened builds alone have more than the inline accessors. */
#include "link.h"

#if HAK_HARDENED
#include "core/base/log.h"
#include "space.h"

void hak_link_fail(const void *block)
{
    const struct hak_slab *slab = hak_space_slab(block);
    if (!slab)
        hak_log_fatal("written after free: a list of free blocks leads to %p, which is none", block);
    hak_log_fatal("written after free: block %p of slab %p (class %u, %u-byte blocks) is free, and was written to", block,
                  (void *)slab->base, slab->cls, slab->stride);
}

void hak_link_check(const void *block, const void *next)
{
    if ((uintptr_t)next % 16 || !hak_space_contains(next))
        hak_link_fail(block);
}
#endif
