/* SPDX-License-Identifier: MIT
 * What hakmem/inline.h calls: in libhakmem.a alone, since only who links statically reaches the bins. Its blocks are of
 * the class of their size, without exception: no larger class is borrowed from, and none is sampled or a span. */
#include "core/base/log.h"
#include "core/malloc/malloc.h"

#include <hakmem/inline.h>

_Static_assert(offsetof(struct hakmem_inline_bins, bin) == offsetof(struct hak_cache, bin) &&
                   offsetof(struct hakmem_inline_bins, room) == offsetof(struct hak_cache, room),
               "inline.h has the bins as cache.h has them");

void *hakmem_inline_refill(size_t size)
{
    void *p = hak_alloc_class(hak_class_of(size));
    if (HAK_UNLIKELY(!p))
        errno = ENOMEM;
    return p;
}

void hakmem_inline_check(void *ptr, unsigned cls)
{
    if (HAK_UNLIKELY(hak_tag_class(ptr) != cls))
        hak_log_fatal("invalid hakmem_inline_free: %p is no block of hakmem_inline_malloc of this size", ptr);
    hak_free_check(ptr, cls);
}
