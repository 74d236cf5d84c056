/* SPDX-License-Identifier: MIT
 * What hakmem.h has beyond the C library's functions: figures, sizes, limits. A static program that uses none of it
 * does not take this object. */
#include <string.h>

#include "core/pages/space.h"
#include "core/process/figures.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"
#include "edge.h"
#include "hakmem.h"

_Static_assert((int)HAKMEM_STAT_LIMIT == HAK_FIGURE_LIMIT && HAK_FIGURE_LIMIT + 1 == HAK_NFIGURES, "the same order");

HAK_EXPORT int hakmem_read(enum hakmem_stat stat, uint64_t *value)
{
    HAK_UNSEEN;
    return hak_init() ? hak_figure((unsigned)stat, value) : -ENOMEM;
}

HAK_EXPORT int hakmem_limit(size_t bytes, int (*reached)(size_t wanted, void *context), void *context)
{
    HAK_UNSEEN;
    if (!hak_init())
        return -ENOMEM;
    hak_limit_hard(bytes, reached, context);
    return 0;
}

HAK_EXPORT size_t hakmem_good_size(size_t size)
{
    return size > PTRDIFF_MAX - HAK_PAGE ? 0 : edge_good_size(size);
}

HAK_EXPORT void *hakmem_expand(void *ptr, size_t size)
{
    return ptr && edge_expand(ptr, size) ? ptr : NULL;
}

HAK_EXPORT void *hakmem_aligned_calloc(size_t alignment, size_t count, size_t size)
{
    size_t total;
    if (!hak_is_pow2(alignment)) {
        errno = EINVAL;
        return NULL;
    }
    if (__builtin_mul_overflow(count, size, &total))
        total = SIZE_MAX; /* no machine has so much */
    return edge_aligned_zeroed(alignment, total);
}

HAK_EXPORT void *hakmem_aligned_realloc(void *ptr, size_t alignment, size_t size)
{
    if (!ptr || !hak_is_pow2(alignment))
        return hakmem_aligned_alloc(alignment, size);
    if (alignment <= 16 || !size)
        return hakmem_realloc(ptr, size);
    size_t usable = hakmem_malloc_usable_size(ptr);
    if (((uintptr_t)ptr & (alignment - 1)) == 0 &&
        (size > usable ? hakmem_expand(ptr, size) != NULL : hak_resize_fits(usable, size)))
        return ptr;
    void *p = edge_given(hak_alloc_beside(hak_space_slab(ptr), edge_room(size), alignment), size, false);
    if (!p)
        return NULL;
    memcpy(p, ptr, hak_min(usable, size));
    hakmem_free(ptr);
    return p;
}
