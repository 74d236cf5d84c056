/* SPDX-License-Identifier: MIT
 * Hardened builds: blocks of no bytes. Each is an address of its own that nobody can read or write. Without locks.
 * Other builds serve them as blocks of one byte. */
#ifndef HAK_ZERO_H
#define HAK_ZERO_H

#include "core/base/words.h"

#if HAK_HARDENED
/* NULL where most are taken: then a block of one byte serves. */
void *hak_zero_alloc(void);
/* Whether p is such a block. Stops the process if it lies among them, but is none; `call` is the program's own. */
bool hak_zero_is_block(const void *p, const char *call);
/* False if p does not lie among them. */
bool hak_zero_free(void *p);
#else
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
#endif

#endif
