/* SPDX-License-Identifier: MIT
 * A thread's bins: for each class a list of free blocks, and how many frees it has room for.
 *
 * The cache lies in thread-local storage (initial-exec), so it takes no page of its own. All zero means empty,
 * disabled, or not yet initialised: one branch of malloc leads to the slow path for all three. Only free() counts, and
 * only down: after so many frees the bin is checked, which bounds its length. */
#ifndef HAK_CACHE_H
#define HAK_CACHE_H

#include "core/base/sizeclass.h"
#include "core/pages/slab.h"
#include "core/pages/tags.h"

struct hak_thread;

struct hak_cache {
    uint64_t tag;              /* the owner tag of this thread; HAK_TAG_NOBODY before and after its life */
    void *head[HAK_NCLASSES];     /* first free block */
    int32_t room[HAK_NCLASSES];   /* frees until the bin is looked at; negative: now */
    struct hak_thread *thread; /* the cold part; NULL before and after its life */
    bool ended;               /* the thread's destructor ran */
};

#define HAK_TAG_NOBODY (~(uint64_t)0 << 32)
#define HAK_TAG_SHARED ((uint64_t)1 << 32) /* of slabs that no thread with a descriptor owns */

extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_cache hak_self;

/* x86-64 addresses the cache relative to the thread's base register: no pointer to it is formed. */
#if defined(__x86_64__) && defined(__SEG_FS) && defined(__OPTIMIZE__) && !HAK_SANITIZED
typedef struct hak_cache __seg_fs *hak_cache_ref;
HAK_INLINE hak_cache_ref hak_cache_here(void)
{
    uintptr_t offset;
    __asm__("movq hak_self@gottpoff(%%rip), %0" : "=r"(offset));
    return (hak_cache_ref)offset;
}

/* Counts a free; true when the bin is to be looked at. In C it takes gcc one instruction more, to share a
 * part of the address that is free in each addressing mode. */
HAK_INLINE bool hak_cache_spend(hak_cache_ref self, uint64_t cls)
{
    bool negative;
    __asm__("subl $1, %%fs:%c[room](%[self], %[cls], 4)"
            : "=@ccs"(negative)
            : [self] "r"((uintptr_t)self), [cls] "r"(cls), [room] "i"(offsetof(struct hak_cache, room))
            : "memory");
    return negative;
}
#else
typedef struct hak_cache *hak_cache_ref;
HAK_INLINE hak_cache_ref hak_cache_here(void)
{
    return &hak_self;
}

HAK_INLINE bool hak_cache_spend(hak_cache_ref self, uint64_t cls)
{
    return --self->room[cls] < 0;
}
#endif

#endif
