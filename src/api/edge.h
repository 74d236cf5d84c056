/* SPDX-License-Identifier: MIT
 * The boundary at which blocks pass between library and program: wrappers of core's functions. Builds for memcheck
 * (-Dvalgrind=true) report each block to it, with the requested size and no more. At least EDGE inaccessible bytes
 * follow, and the last word of the block holds its size. realloc always moves, so that memcheck detects the use of an
 * old address. Only src/api uses this header. */
#ifndef HAK_EDGE_H
#define HAK_EDGE_H

#include "core/base/memcheck.h"
#include "core/malloc/malloc.h"

#if HAK_VALGRIND
#include <string.h>

#define EDGE 16

HAK_INLINE size_t *edge_size(const void *p, const char *call)
{
    return (size_t *)((uintptr_t)p + hak_block_usable(p, call)) - 1;
}

/* A size that is too large stays too large. */
HAK_INLINE size_t edge_room(size_t size)
{
    return size > PTRDIFF_MAX ? size : size + EDGE;
}

HAK_INLINE void *edge_tell(void *p, size_t size, bool zeroed)
{
    if (p) {
        *edge_size(p, "malloc") = size;
        VALGRIND_MALLOCLIKE_BLOCK(p, size, EDGE, zeroed);
    }
    return p;
}

HAK_INLINE void *edge_malloc(size_t size)
{
    HAK_UNSEEN;
    return edge_tell(hak_malloc(edge_room(size)), size, false);
}

HAK_INLINE void *edge_zeroed(size_t size)
{
    HAK_UNSEEN;
    return edge_tell(hak_alloc_zeroed(edge_room(size)), size, true);
}

HAK_INLINE void *edge_aligned(size_t align, size_t size)
{
    HAK_UNSEEN;
    return edge_tell(hak_alloc_aligned(align, edge_room(size)), size, false);
}

HAK_INLINE size_t edge_usable(const void *p, const char *call)
{
    if (!p)
        return 0;
    (void)VALGRIND_CHECK_MEM_IS_ADDRESSABLE(p, 1);
    HAK_UNSEEN;
    return *edge_size(p, call);
}

HAK_INLINE void edge_free(void *p)
{
    if (p)
        VALGRIND_FREELIKE_BLOCK(p, EDGE);
    HAK_UNSEEN;
    hak_free(p);
}

HAK_INLINE void *edge_resize(void *p, size_t size)
{
    size_t old = edge_usable(p, "realloc");
    void *moved = edge_malloc(size);
    if (!moved)
        return NULL;
    memcpy(moved, p, hak_min(old, size));
    edge_free(p);
    return moved;
}
#else
#define edge_malloc hak_malloc
#define edge_zeroed hak_alloc_zeroed
#define edge_aligned hak_alloc_aligned
#define edge_usable hak_usable
#define edge_free hak_free
#define edge_resize hak_resize
#endif

#endif
