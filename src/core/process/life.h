/* SPDX-License-Identifier: MIT
 * The two ends of the process's life. */
#ifndef HAK_LIFE_H
#define HAK_LIFE_H

#include "start.h"

extern HAK_HIDDEN _Atomic(bool) hak_is_initialised; /* stored with release after start and all that may allocate */
HAK_COLD bool hak_init_now(void);

/* Calls hak_start and registers the fork handlers. A program that calls it gets the constructor and destructor of
 * life.c, also from an archive. */
HAK_INLINE bool hak_init(void)
{
    return HAK_LIKELY(HAK_LOAD_ACQUIRE(&hak_is_initialised)) || hak_init_now();
}

#endif
