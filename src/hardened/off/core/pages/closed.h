/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/pages/closed.h. */
#ifndef HAK_CLOSED_H
#define HAK_CLOSED_H

#include "core/base/words.h"

HAK_INLINE void hak_closed_shut(char *base, size_t size)
{
    (void)base, (void)size;
}

HAK_INLINE bool hak_closed_open(char *base, size_t size)
{
    (void)base, (void)size;
    return true;
}

#endif
