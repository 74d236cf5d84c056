/* SPDX-License-Identifier: MIT
 * See block.h. */
#include "block.h"

#include "core/base/log.h"
#include "core/pages/guard.h"
#include "core/pages/mark.h"
#include "core/pages/space.h"
#include "core/pages/zero.h"
#include "core/parts/parts.h"
#include "core/process/life.h"

void hak_block_fail_foreign(const void *p, const char *call)
{
    if (hak_space_contains(p))
        hak_log_fatal("invalid %s: %p lies in hakmem's range, but in no block; freed twice, or never allocated", call,
                      p);
    hak_log_fatal("invalid %s: %p was not allocated by hakmem", call, p);
}

bool hak_block_in_slab(const struct hak_slab *slab)
{
    enum hak_slab_state state = hak_slab_state(slab);
    return state == HAK_SLAB_ACTIVE || state == HAK_SLAB_FULL ||
           (state == HAK_SLAB_PARTIAL && !hak_slab_all_back(slab));
}

/* Checks the header byte before a block. If it is wrong, the program wrote beyond the end of the previous block. */
static void check_header(const struct hak_slab *slab, const void *p)
{
    if (!hak_class_has_header(slab->cls) || !hak_tag_in_header_zone(p) || p == slab->base)
        return;
    unsigned byte = ((const uint8_t *)p)[-1];
    if (HAK_UNLIKELY(byte != hak_header_byte(slab->cls)))
        hak_log_fatal("corrupted header: the byte before block %p is 0x%02x, not 0x%02x: the block before it, %p of "
                      "%u bytes, was written beyond its end",
                      p, byte, hak_header_byte(slab->cls), (void *)((uintptr_t)p - slab->stride), slab->stride - 1);
}

void hak_block_check(const struct hak_slab *slab, const void *p, const char *call)
{
    hak_slab_check_block(slab, p, call);
    check_header(slab, p);
}

static size_t usable_or_zero(const void *p, const char *call)
{
    struct hak_slab *slab = hak_space_slab(p);
    if (slab && hak_block_in_slab(slab)) {
        hak_slab_check_block(slab, p, call);
        hak_mark_check(p, slab->cls, call);
        return hak_class_usable(slab->cls);
    }
    size_t guarded = HAK_UNLIKELY(hak_guard_is_on) ? hak_guard_usable(p, call) : 0;
    if (guarded)
        return guarded;
    return hak_init() ? hak_parts.spans->span_usable(slab, p) : 0;
}

size_t hak_block_usable(const void *p, const char *call)
{
    if (!p)
        return 0;
    size_t usable = usable_or_zero(p, call);
    if (!usable && !hak_zero_is_block(p, call))
        hak_block_fail_foreign(p, call);
    return usable;
}

#if HAK_HARDENED
void hak_block_check_size(const void *p, size_t align, size_t size, const char *call)
{
    size_t usable = hak_block_usable(p, call);
    if (p && (size > usable || (uintptr_t)p & (align - 1)))
        hak_log_fatal("invalid %s: block %p of %zu bytes was never one of %zu bytes, aligned to %zu", call, p, usable,
                      size, align);
}
#endif
