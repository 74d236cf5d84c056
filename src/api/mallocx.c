/* SPDX-License-Identifier: MIT
 * jemalloc's functions for blocks, mallocx and its family, in the shared library that serves malloc: a program that
 * mixes them with free and malloc_usable_size has all its blocks from one allocator, whatever it is linked with. They
 * use public names alone, so that other libraries can contain them, too: libhakmem-profile.so, whose own malloc they
 * then call, and libhakmem-jemalloc.so, with another flags.h. [jemalloc(3), "Non-standard API"] Thread caches in the
 * flags mean nothing. */
#include <api/flags.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/words.h"
#include "hakmem.h"
#include "mallocx.h"

#define LG_ALIGN 0x3f
#define ZERO 0x40
#define ALIGN_MOST 16u    /* of every block */
#define SMALL_MOST 53248u /* larger blocks have no class, but whole pages, and are aligned without more bytes */

/* Not in all C libraries' headers. */
size_t malloc_usable_size(void *p);
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);

static size_t align_of(int flags)
{
    return (size_t)1 << (flags & LG_ALIGN);
}

/* All of the block from that offset on. */
static void *zeroed(void *p, size_t from)
{
    size_t size = p ? malloc_usable_size(p) : 0;
    if (size > from)
        memset((char *)p + from, 0, size - from);
    return p;
}

HAK_EXPORT void *mallocx(size_t size, int flags)
{
    size_t align = align_of(flags);
    if (align > ALIGN_MOST)
        return flags & ZERO ? zeroed(flags_aligned(flags, align, size), 0) : flags_aligned(flags, align, size);
    return flags & ZERO ? zeroed(flags_calloc(flags, size), size) : flags_malloc(flags, size);
}

static void *move_aligned(void *p, size_t old, size_t size, int flags)
{
    size_t good = nallocx(size, flags), align = align_of(flags);
    if ((uintptr_t)p % align == 0 && good && good <= old && good >= old - old / 4)
        return p;
    void *moved = flags_aligned(flags, align, size);
    if (moved) {
        memcpy(moved, p, hak_min(old, malloc_usable_size(moved)));
        free(p);
    }
    return moved;
}

HAK_EXPORT void *rallocx(void *p, size_t size, int flags)
{
    size_t old = malloc_usable_size(p), align = align_of(flags);
    p = align > ALIGN_MOST ? move_aligned(p, old, size, flags) : realloc(p, hak_max(size, 1));
    return flags & ZERO ? zeroed(p, old) : p;
}

/* Where it is; returns the size that the block has then. */
HAK_EXPORT size_t xallocx(void *p, size_t size, size_t extra, int flags)
{
    size_t old = malloc_usable_size(p), most;
    if (__builtin_add_overflow(size, extra, &most) || !hakmem_expand(p, most))
        hakmem_expand(p, size);
    if (flags & ZERO)
        zeroed(p, old);
    return malloc_usable_size(p);
}

HAK_EXPORT size_t sallocx(const void *p, int flags)
{
    (void)flags;
    return malloc_usable_size((void *)(uintptr_t)p);
}

HAK_EXPORT void dallocx(void *p, int flags)
{
    (void)flags;
    free(p);
}

HAK_EXPORT void sdallocx(void *p, size_t size, int flags)
{
    if (align_of(flags) > ALIGN_MOST)
        free_aligned_sized(p, align_of(flags), size);
    else
        free_sized(p, size);
}

/* A free block of a larger class may serve before a new page is touched: then the block has more. With headers and
 * canaries, blocks that are aligned may have more, too. */
HAK_EXPORT size_t nallocx(size_t size, int flags)
{
    size_t align = align_of(flags), good = hakmem_good_size(hak_max(size, 1));
    if (align <= ALIGN_MOST || size > SMALL_MOST || good % ALIGN_MOST || HAK_VALGRIND)
        return align <= PTRDIFF_MAX ? good : 0;
    if (align <= PTRDIFF_MAX && hak_align_up(size, align) <= SMALL_MOST)
        return hakmem_good_size(hak_align_up(hak_max(size, 1), align));
    return align <= PTRDIFF_MAX ? hak_align_up(hak_max(size, 1), 4096) : 0;
}
