/* SPDX-License-Identifier: MIT
 * The functions that hakmem/inline.h calls. They are in libhakmem.a only, since only a statically linked program
 * reaches the bins. Their blocks always have the class of their size: no larger class serves instead, no block is
 * guarded, and none is a span. */
#include "core/base/log.h"
#include "core/malloc/malloc.h"

#include <hakmem/inline.h>

_Static_assert(offsetof(struct hakmem_inline_bins, bin) == offsetof(struct hak_cache, bin) &&
                   offsetof(struct hakmem_inline_bins, room) == offsetof(struct hak_cache, room),
               "inline.h declares the bins like cache.h");

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
