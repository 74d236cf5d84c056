/* SPDX-License-Identifier: MIT
 * What a free block carries: its link, which only one pair of accessors touches, and in hardened builds a mark.
 * Hardened builds encode a link with the block's address and with secrets, and check a link before they follow it: so a
 * link that a program overwrote after free leads nowhere. An attacker who reads a link and knows its target can forge
 * another; so the block's mark is checked before its link is followed. A mark is a number that depends on the block's
 * address and on secrets. It is the block's second word. free detects a second free by it, and malloc detects that it
 * was overwritten. In a bin that is an array, the first word is a mark, too; on a list it is the link. Both are cleared
 * when malloc returns the block, and when its slab becomes empty: neither the program nor the next user of the pages
 * sees them. */
#ifndef HAK_LINK_H
#define HAK_LINK_H

#include "core/base/secret.h"
#include "core/base/sizeclass.h"
#include "core/pages/page_map.h"

/* Stops the process unless a block may begin at `next`, to which the link of `block` leads. */
HAK_COLD void hak_link_check(const void *block, const void *next);
/* Stops the process: the free block `block` was overwritten. */
HAK_COLD _Noreturn void hak_link_fail(const void *block);

HAK_INLINE uintptr_t hak_link_code(const void *block, uintptr_t next)
{
    return next ^ hak_secret_mix((uintptr_t)block + 1); /* the mark uses the address itself */
}

/* Whether a block may begin there, by one compare: it lies in the first zone, and is aligned. False for NULL. */
HAK_INLINE bool hak_link_is_near(uintptr_t next)
{
    uintptr_t offset = next - hak_page_map.base;
    return HAK_LIKELY((offset >> 4 | offset << 60) <
                      *(const size_t *)hak_page_map.units); /* a plain `&`, so it is one instruction */
}

HAK_INLINE void *hak_next_load(const void *block)
{
    uintptr_t next = hak_link_code(block, *(const uintptr_t *)block);
    if (!hak_link_is_near(next) && next)
        hak_link_check(block, (const void *)next);
    return (void *)next;
}

/* For the fast path, which has no calls: false if hak_next_load has to check further. */
HAK_INLINE bool hak_next_try_load(const void *block, void **next)
{
    *next = (void *)hak_link_code(block, *(const uintptr_t *)block);
    return hak_link_is_near((uintptr_t)*next) || HAK_LIKELY(!*next);
}

HAK_INLINE void hak_next_store(void *block, void *next)
{
    *(uintptr_t *)block = hak_link_code(block, (uintptr_t)next);
}

/* The second word of a 16-byte block with a header would overlap the header byte of the next block. */
HAK_INLINE bool hak_mark_fits(unsigned cls)
{
    return !HAK_HEADER_LIMIT || hak_class_usable(cls) >= 16;
}

HAK_INLINE uintptr_t hak_mark_of(const void *p)
{
    return hak_secret_mix((uintptr_t)p);
}

/* The mark of the first word. */
HAK_INLINE uintptr_t hak_mark_first(uintptr_t mark)
{
    return mark ^ hak_secret.first;
}

HAK_INLINE void hak_mark_put(void *p)
{
    uintptr_t *words = p, mark = hak_mark_of(p);
    if (HAK_MARKS_IN_BOTH_WORDS)
        words[0] = hak_mark_first(mark);
    words[1] = mark;
}

/* A block leaves its slab: writes its marks. */
HAK_INLINE void hak_mark_renew(void *p, unsigned cls)
{
    if (hak_mark_fits(cls))
        hak_mark_put(p);
}

/* Whether the mark of a block on a list is intact. */
HAK_INLINE bool hak_mark_is_linked(const void *p, unsigned cls)
{
    return !hak_mark_fits(cls) || HAK_LIKELY(((const uintptr_t *)p)[1] == hak_mark_of(p));
}

/* The same for a block in a bin. */
HAK_INLINE bool hak_mark_is_whole(const void *p, unsigned cls)
{
    const uintptr_t *words = p, mark = hak_mark_of(p);
    return !hak_mark_fits(cls) ||
           (HAK_LIKELY(words[1] == mark) && (!HAK_MARKS_IN_BOTH_WORDS || HAK_LIKELY(words[0] == hak_mark_first(mark))));
}

/* Clears marks and link, which depend on secrets, before the program sees them. */
HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    uintptr_t *words = p;
    words[0] = 0; /* or the link */
    if (hak_mark_fits(cls))
        words[1] = 0;
}

/* These stop the process if the block was written after free. */
HAK_INLINE void hak_mark_check_whole(const void *p, unsigned cls)
{
    if (HAK_UNLIKELY(!hak_mark_is_whole(p, cls)))
        hak_link_fail(p);
}

HAK_INLINE void hak_mark_check_linked(const void *p, unsigned cls)
{
    if (HAK_UNLIKELY(!hak_mark_is_linked(p, cls)))
        hak_link_fail(p);
}

#endif
