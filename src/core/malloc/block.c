/* SPDX-License-Identifier: MIT
 * See block.h. */
#include "block.h"

#include "core/base/log.h"
#include "core/heap/arena.h"
#include "core/pages/guard.h"
#include "core/pages/mark.h"
#include "core/pages/space.h"
#include "core/pages/zero.h"
#include "core/parts/parts.h"
#include "core/process/life.h"

HAK_OPTIONAL(hak_arena_usable);

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

void hak_block_check(const struct hak_slab *slab, const void *p, const char *call)
{
    hak_slab_check_block(slab, p, call);
    hak_slab_check_header(slab, p);
}

static size_t usable_or_zero(struct hak_slab *slab, const void *p, const char *call)
{
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

size_t hak_block_usable_in(struct hak_slab *slab, const void *p, const char *call)
{
    size_t usable = usable_or_zero(slab, p, call);
    if (!usable && hak_arena_of(slab))
        return hak_arena_usable(slab, p, call);
    if (!usable && !hak_zero_is_block(p, call))
        hak_block_fail_foreign(p, call);
    return usable;
}

size_t hak_block_usable(const void *p, const char *call)
{
    return p ? hak_block_usable_in(hak_space_slab(p), p, call) : 0;
}

#if HAK_HARDENED
bool hak_block_sizes_vary;

void *hak_block_end(const void *p, const char *call)
{
    size_t usable = hak_block_usable(p, call);
    bool has_canary = usable && !(HAK_UNLIKELY(hak_guard_is_on) && hak_guard_usable(p, call));
    return has_canary ? (char *)p + usable - HAK_CANARY : NULL;
}

/* If another thread frees it at this moment, it is marked by now, and hak_block_usable says so. */
void hak_block_fail_end(const void *p, const char *call)
{
    hak_log_fatal("overflow: block %p of %zu bytes was written beyond its end", p,
                  hak_block_usable(p, call) - HAK_CANARY);
}

/* realloc leaves a block in its place down to half of its size, and an aligned one may be as long as its alignment: the
 * largest power of two that divides the stride, or a page. */
static bool may_serve(size_t usable, size_t room)
{
    size_t stride = hak_align_up(usable, 16), align = stride & -stride;
    if (hak_block_sizes_vary || room >= usable / 2 || usable <= 64)
        return true;
    if (usable > HAK_SMALL_MAX)
        return usable <= HAK_PAGE;
    return hak_class_usable(hak_class_of_aligned(align, room)) >= usable / 2;
}

void hak_block_check_size(const void *p, size_t align, size_t size, const char *call)
{
    const char *end = hak_block_end(p, call);
    size_t usable = end ? (size_t)(end - (const char *)p) : hak_block_usable(p, call);
    bool is_right = size <= usable && ((uintptr_t)p & (align - 1)) == 0 &&
                    (!end || may_serve(usable + HAK_CANARY, size + HAK_CANARY));
    if (p && !is_right)
        hak_log_fatal("invalid %s: block %p of %zu bytes was never one of %zu bytes, aligned to %zu", call, p, usable,
                      size, align);
}

void hak_block_check_most(const void *p, size_t size, const char *call)
{
    uint64_t cls = hak_tag_class(p);
    size_t usable = 0;
    if (HAK_LIKELY(cls < HAK_NCLASSES))
        usable = hak_mark_is_block(p, cls) ? hak_class_usable((unsigned)cls) : 0;
    else if (p && hak_init())
        usable = hak_parts.spans->span_usable(hak_space_slab(p), p);
    if (HAK_UNLIKELY(usable && size > usable - HAK_CANARY))
        hak_log_fatal("invalid %s: block %p of %zu bytes was never one of %zu bytes", call, p, usable - HAK_CANARY,
                      size);
}
#endif
