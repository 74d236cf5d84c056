/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/pages/zero.h. */
#ifndef HAK_ZERO_H
#define HAK_ZERO_H

#include "core/base/sealed.h"

HAK_INLINE void *hak_zero_alloc(void)
{
    return NULL;
}

HAK_INLINE bool hak_zero_is_block(const void *p, const char *call)
{
    (void)p, (void)call;
    return false;
}

HAK_INLINE bool hak_zero_free(void *p)
{
    (void)p;
    return false;
}

/* Whether free overwrites blocks with zeros (HAKMEM_ZERO_ON_FREE). */
HAK_INLINE bool hak_zeroes_on_free(void)
{
    return false;
}

#endif
