/* SPDX-License-Identifier: MIT
 * A thread's bins: for each class its free blocks, and the number of frees that it has room for. The cache chosen at
 * build time decides how a bin holds blocks (caches/contract.h).
 *
 * The bins lie in thread-local storage (initial-exec), so they take no page of their own. Before a thread's first slow
 * path and after its end they are empty and have no room: so one branch of malloc covers an empty bin, a disabled one
 * and one not yet initialised. */
#ifndef HAK_CACHE_H
#define HAK_CACHE_H

#include "cache_layout.h"
#include "core/base/sizeclass.h"
#include "core/pages/slab.h"
#include "core/pages/tags.h"

struct hak_heap;

/* The room for `frees` frees: a word with one bit set, which each free rotates right by one. A free that finds it in
 * bit 0 has no room. Its rotation moves the bit to the top, so the caller then sets the room anew. If all bits are set,
 * no free ever has room. On x86-64 a rotation leaves the zero flag alone, so one branch tests for both no room and a
 * block freed twice in a row. */
#define HAK_ROOM_MOST 62u
#define HAK_ROOM_NONE ((uint64_t)1)
#define HAK_ROOM_NEVER (~(uint64_t)0)
HAK_INLINE uint64_t hak_room(uint32_t frees)
{
    return (uint64_t)1 << frees;
}

/* How many frees are left; -1: the last free had no room. */
HAK_INLINE int hak_room_left(uint64_t room)
{
    return __builtin_ctzll(room << 1 | room >> 63) - 1;
}

/* Counts a free; true if it had no room. */
HAK_INLINE bool hak_room_spend(uint64_t *room)
{
    uint64_t was = *room;
    *room = was >> 1 | was << 63;
    return was & 1;
}

struct hak_cache {
    uint64_t tag;                /* the owner tag of this thread; HAK_TAG_NOBODY before and after its life */
    void *bin[HAK_NCLASSES];     /* the block that malloc will take, or its slot */
    uint64_t room[HAK_NCLASSES]; /* frees until the next tick */
    struct hak_heap *heap;       /* the cold part; NULL before and after its life */
    bool ended;                  /* the thread's destructor ran */
    bool busy;                   /* it has done enough to get a heap */
    bool light;                  /* it uses the arrays of CPUs by sequences */
    uint8_t early_frees;         /* its frees before it had a heap */
    uint8_t steps;               /* its maintenance steps without a heap */
    uint16_t number;             /* the number of the heap that it uses if sequences are off; 0: it has none yet */
};

#define HAK_TAG_NOBODY (~(uint64_t)0 << 32)
/* The tag of slabs that no thread owns: those of CPUs, and the orphan's. A light thread has it, too. */
#define HAK_TAG_SHARED ((uint64_t)1 << 32)

extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_cache hak_self;
/* The thread's cache while it allocates in an arena (thread.h): then hak_self is that of an ended thread. Else NULL. */
extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_cache *hak_suspended;

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
#if HAK_SANITIZED /* gcc tests the addition's flags for NULL; the linker turns it into a lea, which sets none */
    __asm__("" : "+r"(self));
#endif
    return self;
}
#endif

#endif
