/* SPDX-License-Identifier: MIT
 * A thread's bins: for each class its free blocks, and how many frees it has room for. How a bin holds them is the
 * chosen cache's own (caches/contract.h).
 *
 * The bins lie in thread-local storage (initial-exec), so they take no page of their own. Before a thread's life and
 * after it they are empty and have room for no free: one branch of malloc leads to the slow path for empty, disabled
 * and not yet initialised. */
#ifndef HAK_CACHE_H
#define HAK_CACHE_H

#include "core/base/sizeclass.h"
#include "core/pages/slab.h"
#include "core/pages/tags.h"

struct hak_thread;

#if HAK_CACHE_CPU
/* The slots of a class follow on those of the class before; the first one is NULL, so that malloc finds an empty array
 * as it finds a block. */
struct hak_arrays {
    void **top[HAK_NCLASSES]; /* the last slot that holds a block */
    void **end[HAK_NCLASSES]; /* the last slot */
    int32_t room[HAK_NCLASSES]; /* frees until the array is looked at: at most its free slots; negative: now */
    void *slots[];
};
extern HAK_HIDDEN struct hak_arrays hak_arrays_closed; /* of no processor: empty, without room */
#endif

struct hak_cache {
    uint64_t tag;              /* the owner tag of this thread; HAK_TAG_NOBODY before and after its life */
#if HAK_CACHE_CPU
    struct hak_arrays *arrays; /* the thread's own, where restartable sequences are off; else the closed ones */
#else
    void *bin[HAK_NCLASSES];      /* list: its first block; array: the slot of its last one */
    int32_t room[HAK_NCLASSES];   /* frees until the bin is looked at; negative: now */
#endif
    struct hak_thread *thread; /* the cold part; NULL before and after its life */
    bool ended;               /* the thread's destructor ran */
    uint8_t early_frees;      /* before it had a descriptor */
};

#define HAK_TAG_NOBODY (~(uint64_t)0 << 32)
#if HAK_CACHE_CPU
#include "core/os/rseq.h"
#define HAK_TAG_PROCESSORS (~(uint64_t)0 << 31) /* of the slabs of all of them; fits into an instruction */
#define HAK_TAG_SHARED (hak_rseq_is_on() ? HAK_TAG_PROCESSORS : (uint64_t)1 << 32)
#else
#define HAK_TAG_SHARED ((uint64_t)1 << 32) /* of slabs that no thread with a descriptor owns */
#endif

extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_cache hak_self;
#if HAK_CACHE_ARRAY
extern HAK_HIDDEN void *const hak_cache_no_slots[1]; /* the end of bins without slots */
#endif

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

#if !HAK_CACHE_CPU
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
#endif
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

#if !HAK_CACHE_CPU
HAK_INLINE bool hak_cache_spend(hak_cache_ref self, uint64_t cls)
{
    return --self->room[cls] < 0;
}
#endif
#endif

/* The tag of slabs whose blocks free takes on the fast path. */
HAK_INLINE uint64_t hak_cache_tag(hak_cache_ref self)
{
#if HAK_CACHE_CPU
    (void)self;
    return HAK_TAG_PROCESSORS;
#else
    return self->tag;
#endif
}

#endif
