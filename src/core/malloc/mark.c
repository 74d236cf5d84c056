/* SPDX-License-Identifier: MIT
 * See mark.h. */
#include "mark.h"

#if HAK_HARDENED
#include "core/base/log.h"
#include "core/heap/descriptor.h"
#include "core/pages/space.h"

uintptr_t hak_mark_secret = (uintptr_t)0x9e3779b97f4a7c15u;

static void find_twice(const void *p, unsigned cls, const void *list)
{
    uint32_t left = 65536;
    for (; list && left; list = hak_next_load(list), left--)
        if (list == p)
            hak_log_fatal("double free: block %p of %u bytes is free already", p, hak_strides[cls]);
}

void hak_mark_found(void *p, unsigned cls)
{
    struct hak_thread *t = hak_self.thread;
    struct hak_slab *slab = hak_space_slab(p);
    find_twice(p, cls, hak_self.head[cls]);
    if (t)
        find_twice(p, cls, t->bins[cls].remote_cache);
    if (!slab || HAK_LOAD_RELAXED(&slab->owner) != t)
        return;
    find_twice(p, cls, slab->free);
    uint32_t i = hak_slab_bit_of(slab, p);
    if (slab->map_divisor && slab->map[i / 64] >> i % 64 & 1)
        hak_slab_fail_free(slab, p);
}
#endif
