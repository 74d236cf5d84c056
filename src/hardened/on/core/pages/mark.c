/* SPDX-License-Identifier: MIT
 * See core/pages/mark.h. */
#include "core/pages/mark.h"

#include "core/base/log.h"

const uint64_t hak_inverses[HAK_NCLASSES] = {HAK_INVERSES};

void hak_mark_fail(const void *p, unsigned cls, const char *call)
{
    const struct hak_slab *slab = hak_space_slab(p);
    if (!slab)
        hak_log_fatal("invalid %s: %p lies in hakmem's range, but in no block", call, p);
    hak_slab_check_block(slab, p, call);
    if (slab->cls != cls)
        hak_log_fatal("invalid %s: %p lies in slab %p of %u-byte blocks, not of %u", call, p, (void *)slab->base,
                      slab->stride, hak_strides[cls]);
    if (*call == 'f')
        hak_log_fatal("double free: block %p of %u bytes is free already", p, slab->stride);
    hak_log_fatal("invalid %s: block %p of %u bytes is free", call, p, slab->stride);
}
