/* SPDX-License-Identifier: MIT
 * The two ends of the process's life. */
#ifndef HAK_LIFE_H
#define HAK_LIFE_H

#include "start.h"

/* hak_start, for those above, and fork's handlers. Who calls it has the constructor and destructor of life.c linked in,
 * from an archive too. */
bool hak_init(void);

#endif
