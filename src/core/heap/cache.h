/* SPDX-License-Identifier: MIT
 * A thread's bins: for each class its free blocks, and how many frees it has room for. How a bin holds them is the
 * chosen cache's own (caches/contract.h).
 *
 * The bins lie in thread-local storage (initial-exec), so they take no page of their own. Before a thread's life and
 * after it they are empty and have room for no free: one branch of malloc leads to the slow path for empty, disabled
 * and not yet initialised. */
#ifndef HAK_CACHE_H
#define HAK_CACHE_H

#include "caches/layout.h"
#include "core/base/sizeclass.h"
#include "core/pages/slab.h"
#include "core/pages/tags.h"

struct hak_heap;

/* So many frees, as free() counts them: a word of one bit, which each turns by one place to the right. The free that
 * finds it at the end has no room, and turns it to where it is as far from there as can be: it has to be set anew.
 * Where all bits are set, no free ever has room. On x86-64 a rotation leaves the zero flag alone, so one branch tells
 * this and whether a block is freed twice in a row. */
#define HAK_ROOM_MOST 62u
#define HAK_ROOM_NONE ((uint64_t)1)
#define HAK_ROOM_NEVER (~(uint64_t)0)
HAK_INLINE uint64_t hak_room(uint32_t frees)
{
    return (uint64_t)1 << frees;
}

/* Of them are left; -1: the last free had no room. */
HAK_INLINE int hak_room_left(uint64_t room)
{
    return __builtin_ctzll(room << 1 | room >> 63) - 1;
}

/* Counts a free; whether it had no room. */
HAK_INLINE bool hak_room_spend(uint64_t *room)
{
    uint64_t was = *room;
    *room = was >> 1 | was << 63;
    return was & 1;
}

struct hak_cache {
    uint64_t tag;              /* the owner tag of this thread; HAK_TAG_NOBODY before and after its life */
    HAK_CACHE_FIELDS
    struct hak_heap *heap;    /* the cold part; NULL before and after its life */
    bool ended;               /* the thread's destructor ran */
    uint8_t early_frees;      /* before it had a heap */
};

#define HAK_TAG_NOBODY (~(uint64_t)0 << 32)
#define HAK_TAG_CPUS (~(uint64_t)0 << 31) /* of the slabs of all CPUs' heaps; fits into an instruction */
#define HAK_TAG_SHARED (hak_heaps_are_of_cpus() ? HAK_TAG_CPUS : (uint64_t)1 << 32) /* of slabs that no thread owns */

/* Whether heaps belong to CPUs, not to threads: settled at the library's start. */
#define hak_heaps_are_of_cpus() (HAK_CACHE_CPU && hak_heaps_of_cpus)
extern HAK_HIDDEN bool hak_heaps_of_cpus; /* with the cache `cpu` alone */

extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_cache hak_self;

/* x86-64 addresses the cache relative to the thread's base register: no pointer to it is formed. */
#if defined(__x86_64__) && defined(__SEG_FS) && defined(__OPTIMIZE__) && !HAK_SANITIZED
#define HAK_CACHE_BY_SEGMENT 1
typedef struct hak_cache __seg_fs *hak_cache_ref;
HAK_INLINE hak_cache_ref hak_cache_here(void)
{
    uintptr_t offset;
    __asm__("movq hak_self@gottpoff(%%rip), %0" : "=r"(offset));
    return (hak_cache_ref)offset;
}
#else
#define HAK_CACHE_BY_SEGMENT 0
typedef struct hak_cache *hak_cache_ref;
HAK_INLINE hak_cache_ref hak_cache_here(void)
{
    hak_cache_ref self = &hak_self;
#if HAK_SANITIZED /* gcc takes the flags of the addition for a look at NULL; the linker makes a lea of it, without flags */
    __asm__("" : "+r"(self));
#endif
    return self;
}
#endif

/* The tag of slabs whose blocks free takes on the fast path. */
HAK_INLINE uint64_t hak_cache_tag(hak_cache_ref self)
{
    (void)self;
    return HAK_CACHE_CPU ? HAK_TAG_CPUS : self->tag;
}

#endif
