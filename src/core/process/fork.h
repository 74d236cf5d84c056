/* SPDX-License-Identifier: MIT
 * fork(): all locks are held across it, taken in the order of their ranks. One registration, from the
 * library's constructor. */
#ifndef HAK_FORK_H
#define HAK_FORK_H

void hak_fork_constructor(void);

#endif
