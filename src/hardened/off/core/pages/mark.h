/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/pages/mark.h. */
#ifndef HAK_MARK_H
#define HAK_MARK_H

#include "core/base/sizeclass.h"
#include "core/pages/link.h"

HAK_INLINE void hak_mark_check(const void *p, unsigned cls, const char *call)
{
    (void)p, (void)cls, (void)call;
}

HAK_INLINE bool hak_mark_try_set(void *p, uint64_t cls)
{
    (void)p, (void)cls;
    return true;
}

HAK_INLINE void hak_mark_set(void *p, uint64_t cls)
{
    (void)p, (void)cls;
}

#endif
