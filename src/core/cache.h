/* SPDX-License-Identifier: MIT
 * The fast path: a thread's bins, one singly linked list of free blocks for each class, and the two ways in
 * which free() learns the bin of a block: the tag of its page (owner compare), or, in header builds, the
 * byte before it.
 *
 * The cache lies in the thread's own storage (initial-exec), so a thread costs no page for it. All zero
 * means empty, disabled, or not yet initialised: one branch leads to the slow path for all three. No call,
 * no lock, no atomic read-modify-write here; tests/shape counts the instructions.
 *
 * Only free() counts, and only down: every so many frees the bin is looked at (hak_bin_look), which bounds
 * its length, and is also the heartbeat by which a thread that does nothing but malloc and free still gives
 * idle memory back. */
#ifndef HAK_CACHE_H
#define HAK_CACHE_H

#include "slab.h"
#include "space.h"

struct hak_thread;

struct hak_cache {
    uint64_t tag;              /* the owner tag of this thread; HAK_TAG_NOBODY before and after its life */
    void *head[HAK_NBINS];     /* first free block */
    int32_t room[HAK_NBINS];   /* frees until the bin is looked at; negative: now */
    struct hak_thread *thread; /* the cold part; NULL before and after its life */
    bool ended;               /* the thread's destructor ran */
};

#define HAK_TAG_NOBODY (~(uint64_t)0 << 32)

extern HAK_HIDDEN __thread struct hak_cache hak_self __attribute__((tls_model("initial-exec")));

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
HAK_INLINE bool hak_cache_spend(hak_cache_ref self, uint64_t bin)
{
    bool negative;
    __asm__("subl $1, %%fs:%c[room](%[self], %[bin], 4)"
            : "=@ccs"(negative)
            : [self] "r"((uintptr_t)self), [bin] "r"(bin), [room] "i"(offsetof(struct hak_cache, room))
            : "memory");
    return negative;
}
#else
typedef struct hak_cache *hak_cache_ref;
HAK_INLINE hak_cache_ref hak_cache_here(void)
{
    return &hak_self;
}

HAK_INLINE bool hak_cache_spend(hak_cache_ref self, uint64_t bin)
{
    return --self->room[bin] < 0;
}
#endif

/* The slow paths, in slow.c and bin.c. */
HAK_NOINLINE void *hak_malloc_slow(size_t size);
HAK_NOINLINE void hak_free_slow(void *p);
HAK_NOINLINE void hak_bin_look(unsigned bin);

/* --- the header byte ------------------------------------------------------------------------------ */

/* The bin of a block, or HAK_NBINS and more when the slow path has to decide. In header builds blocks of any
 * thread are answered (they go to the caller's bin); a page-aligned block may be the first of its slab,
 * before which there is no byte of ours, so its tag decides. */
HAK_INLINE uint64_t hak_bin_of(hak_cache_ref self, const void *p)
{
#if HAK_HEADER_LIMIT
    if (hak_space_in_header_zone(p) && ((uintptr_t)p & 0xfff)) {
        unsigned bin = ((const uint8_t *)p)[-1] - HAK_HEADER_MAGIC;
        return bin < HAK_HEADER_BINS ? bin : HAK_NBINS;
    }
#endif
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG;
    return page ^ hak_tag_load(page) ^ self->tag;
}

/* --- hardened: a freed block carries a mark, and its second free finds it -------------------------- */

#if HAK_HARDENED
extern uintptr_t hak_mark_secret;
HAK_NOINLINE void hak_mark_found(void *p, unsigned bin);

HAK_INLINE void hak_mark_clear(void *p)
{
    ((uintptr_t *)p)[1] = 0;
}

HAK_INLINE void hak_mark_set(void *p, unsigned bin)
{
    uintptr_t mark = (uintptr_t)p ^ hak_mark_secret;
    /* The second word of a 16-byte block with a header reaches its last byte, which names the next bin. */
    if (hak_class_usable(bin) < 16)
        return;
    if (HAK_UNLIKELY(((uintptr_t *)p)[1] == mark))
        hak_mark_found(p, bin);
    ((uintptr_t *)p)[1] = mark;
}
#endif

#if HAK_COUNTING
void hak_count_malloc(void);
void hak_count_free(void);
#else
#define hak_count_malloc() ((void)0)
#define hak_count_free() ((void)0)
#endif

/* --- malloc and free ------------------------------------------------------------------------------ */

HAK_INLINE void *hak_malloc(size_t size)
{
    if (HAK_UNLIKELY(size > HAK_SMALL_MAX))
        return hak_malloc_slow(size);
    hak_count_malloc();
    hak_cache_ref self = hak_cache_here();
    unsigned bin = hak_class_of(size);
    void *p = self->head[bin];
    if (HAK_UNLIKELY(!p))
        return hak_malloc_slow(size);
    self->head[bin] = hak_next_load(p);
#if HAK_HARDENED
    if (hak_class_usable(bin) >= 16)
        hak_mark_clear(p);
#endif
    return p;
}

HAK_INLINE void hak_free(void *p)
{
    hak_count_free();
    hak_cache_ref self = hak_cache_here();
    uint64_t bin = hak_bin_of(self, p);
    if (HAK_UNLIKELY(bin >= HAK_NBINS)) {
        hak_free_slow(p);
        return;
    }
#if HAK_HARDENED
    hak_mark_set(p, (unsigned)bin);
#endif
    hak_next_store(p, self->head[bin]);
    self->head[bin] = p;
    if (HAK_UNLIKELY(hak_cache_spend(self, bin)))
        hak_bin_look((unsigned)bin);
}

#endif
