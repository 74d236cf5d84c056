/* SPDX-License-Identifier: MIT
 * Hardened builds: a freed block carries a mark, and its second free finds it. Other builds: nothing. */
#ifndef HAK_MARK_H
#define HAK_MARK_H

#include "core/base/sizeclass.h"

#if HAK_HARDENED
extern uintptr_t hak_mark_secret;
/* A block that is freed carries the mark already: was it freed before, or does the program hold that value? */
HAK_NOINLINE void hak_mark_found(void *p, unsigned cls);

/* The second word of a 16-byte block with a header reaches its last byte, which names the next class. */
HAK_INLINE bool hak_mark_fits(unsigned cls)
{
    return hak_class_usable(cls) >= 16;
}

HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    if (hak_mark_fits(cls))
        ((uintptr_t *)p)[1] = 0;
}

HAK_INLINE void hak_mark_set(void *p, unsigned cls)
{
    uintptr_t mark = (uintptr_t)p ^ hak_mark_secret;
    if (!hak_mark_fits(cls))
        return;
    if (HAK_UNLIKELY(((uintptr_t *)p)[1] == mark))
        hak_mark_found(p, cls);
    ((uintptr_t *)p)[1] = mark;
}
#else
#define hak_mark_clear(p, cls) ((void)0)
#define hak_mark_set(p, cls) ((void)0)
#endif

#endif
