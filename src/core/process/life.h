/* SPDX-License-Identifier: MIT
 * The two ends of the process's life. */
#ifndef HAK_LIFE_H
#define HAK_LIFE_H

#include "start.h"

extern HAK_HIDDEN _Atomic(bool) hak_is_initialised; /* released after the start and all that may allocate */
HAK_COLD bool hak_init_now(void);

/* hak_start, for those above, and fork's handlers. Who calls it has the constructor and destructor of life.c linked in,
 * from an archive too. */
HAK_INLINE bool hak_init(void)
{
    return HAK_LIKELY(HAK_LOAD_ACQUIRE(&hak_is_initialised)) || hak_init_now();
}

#endif
