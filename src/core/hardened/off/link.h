/* SPDX-License-Identifier: MIT
 * Other builds than hardened ones: see core/pages/link.h. */
#ifndef HAK_OFF_LINK_H
#define HAK_OFF_LINK_H

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
