/* SPDX-License-Identifier: MIT
 * The boundary at which blocks pass between library and program: wrappers of core's functions. Builds for memcheck
 * (-Dvalgrind=true) report each block to it, with the requested size and no more. At least EDGE inaccessible bytes
 * follow, and the last word of the block holds its size. realloc always moves, so that memcheck detects the use of an
 * old address. In builds with -Dhardened=full the last word of a live block is a canary: a keyed function of the
 * block's address, which malloc writes and free clears. Only src/api uses this header. */
#ifndef HAK_EDGE_H
#define HAK_EDGE_H

#include "core/base/memcheck.h"
#include "core/malloc/malloc.h"

/* Bytes at the end of a block that are not the program's. */
#define EDGE (HAK_VALGRIND ? 16 : HAK_CANARY)

#if HAK_VALGRIND
#include <string.h>

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

/* A block of a heap of the program. */
HAK_INLINE void *edge_given(void *p, size_t size, bool zeroed)
{
    return edge_tell(p, size, zeroed);
}

/* A live block of a heap that is destroyed. */
HAK_INLINE void edge_forget(void *p)
{
    VALGRIND_FREELIKE_BLOCK(p, EDGE);
}

HAK_INLINE size_t edge_good_size(size_t size)
{
    return size;
}

HAK_INLINE bool edge_expand(void *p, size_t size)
{
    return size <= edge_usable(p, "expand");
}

HAK_INLINE void *edge_aligned_zeroed(size_t align, size_t size)
{
    HAK_UNSEEN;
    return edge_tell(hak_alloc_aligned_zeroed(align, edge_room(size)), size, true);
}
#elif HAK_CANARY
#include <string.h>

#include "core/pages/guard.h"

/* Not made from the mark, which a read after free shows: twelve marks and canaries would give away `end`, by lattice
 * reduction. A header leaves no place that is aligned. */
typedef uint64_t __attribute__((aligned(1), may_alias)) edge_word;

HAK_INLINE uint64_t edge_canary(const void *p)
{
    return hak_secret_fold(hak_secret_inner((uintptr_t)p), hak_secret.end);
}

HAK_INLINE size_t edge_room(size_t size)
{
    return size - 1 < PTRDIFF_MAX ? size + HAK_CANARY : size;
}

HAK_INLINE edge_word *edge_end_of_class(const void *p, uint64_t cls)
{
    return (edge_word *)((uintptr_t)p + hak_class_usable((unsigned)cls) - HAK_CANARY);
}

/* Where the program's bytes of a live block end; NULL for a block without a canary. */
HAK_INLINE edge_word *edge_end(const void *p, const char *call)
{
    uint64_t cls = hak_tag_class(p);
    return HAK_LIKELY(cls < HAK_NCLASSES) ? edge_end_of_class(p, cls) : hak_block_end(p, call);
}

HAK_INLINE void *edge_tell(void *p)
{
    edge_word *end = edge_end(p, "malloc");
    if (HAK_LIKELY(end))
        *end = edge_canary(p);
    return p;
}

/* Before the block is freed or moves: no canary stays in memory that malloc may hand out. */
HAK_INLINE void edge_take(void *p, const char *call)
{
    uint64_t cls = hak_tag_class(p);
    if (HAK_LIKELY(cls < HAK_NCLASSES))
        hak_mark_check(p, (unsigned)cls, call);
    edge_word *end = edge_end(p, call);
    if (HAK_UNLIKELY(end && *end != edge_canary(p)))
        hak_block_fail_end(p, call);
    if (HAK_LIKELY(end))
        *end = 0;
}

HAK_INLINE void *edge_malloc(size_t size)
{
    size_t room = edge_room(size);
    if (HAK_UNLIKELY(room - 1 >= HAK_SMALL_MAX))
        return edge_tell(hak_malloc_slow(room));
    unsigned cls = hak_class_of(room);
    void *p = hak_pop(cls);
    if (HAK_UNLIKELY(!p))
        return edge_tell(hak_malloc_slow(room));
    *edge_end_of_class(p, cls) = edge_canary(p);
    return p;
}

/* A guarded block has no room for a canary: its usable size is the requested size. */
HAK_INLINE void *edge_zeroed(size_t size)
{
    if (size > HAK_SMALL_MAX - HAK_CANARY)
        return edge_tell(hak_alloc_zeroed(edge_room(size)));
    void *p = edge_malloc(size);
    return HAK_LIKELY(p) ? memset(p, 0, size) : NULL;
}

HAK_INLINE void *edge_aligned(size_t align, size_t size)
{
    return edge_tell(hak_alloc_aligned(align, edge_room(size)));
}

HAK_INLINE size_t edge_usable(const void *p, const char *call)
{
    size_t usable = hak_usable(p, call);
    return HAK_LIKELY(usable && edge_end(p, call)) ? usable - HAK_CANARY : usable;
}

static HAK_NOINLINE void edge_free_slowly(void *p)
{
    edge_take(p, "free");
    hak_free_slow(p);
}

HAK_INLINE void edge_free(void *p)
{
    hak_cache_ref self = hak_cache_here();
    uint64_t cls = hak_class_of_block(self, p);
    if (HAK_COUNTING)
        hak_count_free();
    if (HAK_UNLIKELY(cls >= HAK_NCLASSES || !hak_mark_is_block(p, cls) ||
                     *edge_end_of_class(p, cls) != edge_canary(p) || hak_mark_is_set(p, cls))) {
        edge_free_slowly(p);
        return;
    }
    *edge_end_of_class(p, cls) = 0; /* in the smallest blocks the mark takes its place */
    hak_mark_renew(p, (unsigned)cls);
    if (HAK_UNLIKELY(!hak_cache_push(self, cls, p)))
        hak_free_check(p, (unsigned)cls);
}

static HAK_NOINLINE void *edge_move(void *p, size_t size)
{
    size_t old = edge_usable(p, "realloc");
    void *q = edge_tell(hak_alloc_beside(hak_space_slab(p), edge_room(size), 1));
    if (!q)
        return size <= old ? p : NULL;
    memcpy(q, p, hak_min(old, size));
    edge_free(p);
    return q;
}

HAK_INLINE void *edge_resize(void *p, size_t size)
{
    if (HAK_UNLIKELY(hak_guard_is_on && size <= HAK_GUARD_MAX))
        return edge_move(p, size);
    edge_take(p, "realloc");
    void *q = hak_resize(p, edge_room(size));
    if (HAK_UNLIKELY(q && hak_zeroes_on_free())) /* the rest, from edge_room(size) on, is clear */
        memset((char *)q + size, 0, HAK_CANARY);
    edge_tell(q ? q : p);
    return q;
}

#define edge_forget(p) ((void)(p))

HAK_INLINE void *edge_given(void *p, size_t size, bool zeroed)
{
    (void)size, (void)zeroed;
    return p ? edge_tell(p) : NULL;
}

HAK_INLINE size_t edge_good_size(size_t size)
{
    return size ? hak_good_size(edge_room(size)) - HAK_CANARY : 0;
}

HAK_INLINE bool edge_expand(void *p, size_t size)
{
    size_t usable = edge_usable(p, "expand");
    if (size <= usable || usable <= HAK_SMALL_MAX)
        return size <= usable;
    edge_take(p, "expand");
    bool done = hak_expand(p, edge_room(size));
    edge_tell(p);
    return done;
}

HAK_INLINE void *edge_aligned_zeroed(size_t align, size_t size)
{
    return edge_tell(hak_alloc_aligned_zeroed(align, edge_room(size)));
}
#else
#define edge_malloc hak_malloc
#define edge_zeroed hak_alloc_zeroed
#define edge_aligned hak_alloc_aligned
#define edge_usable hak_usable
#define edge_free hak_free
#define edge_resize hak_resize
#define edge_good_size hak_good_size
#define edge_room(size) (size)
#define edge_given(p, size, zeroed) (p)
#define edge_forget(p) ((void)(p))
#define edge_expand hak_expand
#define edge_aligned_zeroed hak_alloc_aligned_zeroed
#endif

#endif
