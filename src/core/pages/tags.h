/* SPDX-License-Identifier: MIT
 * The page tags, which every free reads with one load. zones.c makes the table and grows it. */
#ifndef HAK_TAGS_H
#define HAK_TAGS_H

#include "core/base/sizeclass.h"

/* The tag of a page is (address >> 16) ^ owner tag ^ bin, where all owner tags have the low 32 bits 0,
 * and stands at index (address >> 16) & mask. free() computes (p >> 16) ^ tag ^ own tag: below HAK_NCLASSES exactly
 * if p lies in a page of a slab whose last owner was this thread. A page that shares the index differs in the
 * bits that the mask dropped, an unused tag is zero, and no thread's owner tag is.
 *
 * A tag's owner is a hint: a block may enter any bin of its class, and a free that finds no tag takes the slow path. A
 * tag's class is exact: the tag is set before the first block is handed out, and cleared before the pages may serve
 * anything else. So the table may grow in place: a larger mask is published, and tags whose index moves are missed
 * once. If a slab was formatted under the new mask, no thread that frees its blocks can still read the old one: it got
 * the block through synchronisation, and loads of one atomic never go back in time. */
struct hak_tags {
    char page_start[192]; /* see below */
    _Atomic(uint64_t) *table;
    _Atomic(uint64_t) mask;
    uintptr_t header_base;         /* exactly the blocks with a header byte lie in [base, base + size) */
    _Atomic(uint64_t) header_size; /* grows */
};

/* A load waits for an earlier store whose address has the same low 12 bits (4 KiB aliasing). Large blocks begin at page
 * boundaries, and programs write there before they free; so the fields that free() loads lie at other offsets. */
extern HAK_HIDDEN struct hak_tags hak_tags;

/* Plain loads, which the compiler can fold into an operand: the load of the tag depends on the mask, which orders the
 * two. Sanitizers do not see dependencies, and get acquire loads, which pair with the release in grow_tags
 * (zones.c). */
#if HAK_SANITIZED
#define HAK_TAG_LOAD(atomic) HAK_LOAD_ACQUIRE(&(atomic))
#else
#define HAK_TAG_LOAD(atomic) (*(const uint64_t *)&(atomic))
#endif

HAK_INLINE uint64_t hak_tag_load(uint64_t page)
{
    return HAK_TAG_LOAD(hak_tags.table[page & HAK_TAG_LOAD(hak_tags.mask)]);
}

/* The class of the blocks of a page with a tag, whoever owns it; else at least HAK_NCLASSES. The tag of an unused page
 * is 0, which would look like a class where no block can be. */
HAK_INLINE uint64_t hak_tag_class(const void *p)
{
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG;
    return HAK_LIKELY(page >= HAK_NCLASSES) ? (uint32_t)(page ^ hak_tag_load(page)) : HAK_NCLASSES;
}

HAK_INLINE void hak_tag_set(const void *p, uint64_t owner_tag, unsigned cls)
{
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG, mask = HAK_LOAD_ACQUIRE(&hak_tags.mask);
    HAK_STORE_RELAXED(&hak_tags.table[page & mask], page ^ owner_tag ^ cls);
}

HAK_INLINE void hak_tag_clear(const void *p)
{
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG, mask = HAK_LOAD_ACQUIRE(&hak_tags.mask);
    HAK_STORE_RELAXED(&hak_tags.table[page & mask], 0);
}

HAK_INLINE bool hak_tag_in_header_zone(const void *p)
{
    return (uintptr_t)p - hak_tags.header_base < HAK_TAG_LOAD(hak_tags.header_size);
}

#endif
