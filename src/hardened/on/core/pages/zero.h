/* SPDX-License-Identifier: MIT
 * Hardened builds: blocks of zero bytes, and clearing of freed blocks. Each block of zero bytes has an address of its
 * own, which is inaccessible. No locks. Other builds serve them as blocks of one byte. */
#ifndef HAK_ZERO_H
#define HAK_ZERO_H

#include "core/base/sealed.h"

/* An address; NULL if most are taken: then the caller uses a block of one byte. */
void *hak_zero_alloc(void);
/* Whether p is such a block. Stops the process if it lies in the range but is none; `call` is the function that the
 * program called. */
bool hak_zero_is_block(const void *p, const char *call);
/* False if p does not lie in the range. */
bool hak_zero_free(void *p);

/* Whether free overwrites blocks with zeros (HAKMEM_ZERO_ON_FREE). */
HAK_INLINE bool hak_zeroes_on_free(void)
{
    return hak_options.zero_on_free;
}

#endif
