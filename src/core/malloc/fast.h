/* SPDX-License-Identifier: MIT
 * The fast path: malloc and free of small blocks, and the two ways in which free() finds the class of a block: the tag
 * of its page, which it compares with its own, or, in header builds, the byte before the block. It has no call, no lock
 * and no atomic read-modify-write; tests/shape counts its instructions. The slow path does everything else. */
#ifndef HAK_FAST_H
#define HAK_FAST_H

#include "block.h"
#include "cache_bins.h"
#include "core/pages/mark.h"
#include "slow.h"

/* --- the header byte ------------------------------------------------------------------------------ */

/* The class of a block, or at least HAK_NCLASSES if the slow path has to decide. In header builds this finds the class
 * of any thread's block (it goes to the caller's bin). A page-aligned block may be the first of its slab and have no
 * header byte, so its tag decides. */
HAK_INLINE uint64_t hak_class_of_block(hak_cache_ref self, const void *p)
{
#if HAK_HEADER_LIMIT
    bool asks = HAK_HARDENED && (self->tag == HAK_TAG_NOBODY ||     /* quarantine.h */
                                 hak_tag_class(p) >= HAK_NCLASSES); /* the byte may be in a closed page */
    if (!asks && hak_tag_in_header_zone(p) && ((uintptr_t)p & 0xfff)) {
        unsigned cls = ((const uint8_t *)p)[-1] - HAK_HEADER_MAGIC;
        return cls < HAK_HEADER_CLASSES ? cls : HAK_NCLASSES;
    }
#endif
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG;
    return page ^ hak_tag_load(page) ^ self->tag;
}

/* Usable bytes at p; 0 for NULL. Only hardened builds check that a block begins there. */
HAK_INLINE size_t hak_usable(const void *p, const char *call)
{
    uint64_t cls = hak_tag_class(p);
    if (HAK_UNLIKELY(cls >= HAK_NCLASSES))
        return hak_block_usable(p, call);
    hak_mark_check(p, (unsigned)cls, call);
    return hak_class_usable((unsigned)cls);
}

/* --- malloc and free ------------------------------------------------------------------------------ */

/* A block of the thread's bin; NULL from an empty one. */
HAK_INLINE void *hak_pop(unsigned cls)
{
    if (HAK_COUNTING)
        hak_count_malloc();
    void *p = hak_cache_try_pop(hak_cache_here(), cls);
    if (HAK_UNLIKELY(!p))
        return NULL;
    hak_mark_clear(p, cls);
    return p;
}

/* NULL: the slow path decides. */
HAK_INLINE void *hak_try_malloc(size_t size)
{
    if (HAK_UNLIKELY(size - HAK_HARDENED > HAK_SMALL_MAX - HAK_HARDENED)) /* hardened: also zero bytes (zero.h) */
        return NULL;
    return hak_pop(hak_class_of(size));
}

HAK_INLINE void *hak_malloc(size_t size)
{
    void *p = hak_try_malloc(size);
    if (HAK_LIKELY(p))
        return p;
    return HAK_LIKELY(size <= HAK_SMALL_MAX) ? hak_malloc_slow(size) : hak_malloc_large(size);
}

HAK_INLINE void hak_free(void *p)
{
    if (HAK_COUNTING)
        hak_count_free();
    hak_cache_ref self = hak_cache_here();
    uint64_t cls = hak_class_of_block(self, p);
    if (HAK_UNLIKELY(cls >= HAK_NCLASSES || !hak_mark_try_set(p, cls))) {
        hak_free_slow(p);
        return;
    }
    if (HAK_UNLIKELY(!hak_cache_push(self, cls, p)))
        hak_free_check(p, (unsigned)cls);
}

#endif
