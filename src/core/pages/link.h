/* SPDX-License-Identifier: MIT
 * The link in a free block, and the one pair of accessors for it. Hardened builds write it as a number that depends on
 * the block's address and on a secret, and look at what they read before they use it: what a program wrote to a block
 * after free leads nowhere. */
#ifndef HAK_LINK_H
#define HAK_LINK_H

#include "core/base/words.h"

#if HAK_HARDENED
#include "core/base/secret.h"
#include "page_map.h"

HAK_INLINE uintptr_t hak_link_code(const void *block, uintptr_t next)
{
    return next ^ hak_secret.link ^ __builtin_bswap64((uintptr_t)block);
}

/* Whether a block may begin there, told in one compare: in the first zone, and aligned. NULL is no such address. */
HAK_INLINE bool hak_link_is_near(uintptr_t next)
{
    uintptr_t offset = next - hak_page_map.base;
    return HAK_LIKELY((offset >> 4 | offset << 60) <
                      *(const size_t *)&hak_page_map.units); /* plain: it is one instruction */
}

HAK_INLINE void *hak_next_load(const void *block)
{
    uintptr_t next = hak_link_code(block, *(const uintptr_t *)block);
    if (!hak_link_is_near(next) && next)
        hak_space_check_link(block, (const void *)next);
    return (void *)next;
}

/* For the fast path, which calls nothing: false where hak_next_load has to look closer. */
HAK_INLINE bool hak_next_try_load(const void *block, void **next)
{
    *next = (void *)hak_link_code(block, *(const uintptr_t *)block);
    return hak_link_is_near((uintptr_t)*next) || HAK_LIKELY(!*next);
}

HAK_INLINE void hak_next_store(void *block, void *next)
{
    *(uintptr_t *)block = hak_link_code(block, (uintptr_t)next);
}
#else
HAK_INLINE void *hak_next_load(const void *block)
{
    return *(void *const *)block;
}

HAK_INLINE bool hak_next_try_load(const void *block, void **next)
{
    *next = hak_next_load(block);
    return true;
}

HAK_INLINE void hak_next_store(void *block, void *next)
{
    *(void **)block = next;
}
#endif

#endif
