/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/pages/link.h. */
#ifndef HAK_LINK_H
#define HAK_LINK_H

#include "core/base/sizeclass.h"

/* With bins that are arrays, links are only on lists of slabs. Encoded, a list does not end at a block that the program
 * cleared, since it was freed twice. Decoded, such a word is an address of the kernel. */
#define HAK_LINK_CODE (HAK_CACHE_SLOTS ? (uintptr_t)-0x5a3c6981 : 0)

HAK_INLINE void *hak_next_load(const void *block)
{
    return (void *)(*(const uintptr_t *)block ^ HAK_LINK_CODE);
}

HAK_INLINE bool hak_next_try_load(const void *block, void **next)
{
    *next = hak_next_load(block);
    return true;
}

HAK_INLINE void hak_next_store(void *block, void *next)
{
    *(uintptr_t *)block = (uintptr_t)next ^ HAK_LINK_CODE;
}

HAK_INLINE void hak_mark_renew(void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE bool hak_mark_is_whole(const void *p, unsigned cls)
{
    (void)p, (void)cls;
    return true;
}

HAK_INLINE void hak_mark_check_whole(const void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE void hak_mark_check_linked(const void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    (void)p, (void)cls;
}

#endif
