/* SPDX-License-Identifier: MIT
 * What stops the process at a link that leads astray. See link.h. */
#include "core/pages/space.h"

#include "core/base/log.h"

void hak_link_fail(const void *block)
{
    const struct hak_slab *slab = hak_space_slab(block);
    if (!slab)
        hak_log_fatal("written after free: a list of free blocks leads to %p, which is none", block);
    hak_log_fatal("written after free: block %p of slab %p (class %u, %u-byte blocks) is free, and was written to",
                  block, (void *)slab->base, slab->cls, slab->stride);
}

void hak_link_check(const void *block, const void *next)
{
    if ((uintptr_t)next % 16 || !hak_space_contains(next))
        hak_link_fail(block);
}
