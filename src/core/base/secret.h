/* SPDX-License-Identifier: MIT
 * Hardened builds: numbers that the process draws once, before its first block, and keeps in sealed memory. */
#ifndef HAK_SECRET_H
#define HAK_SECRET_H

#include "sealed.h"

#define hak_secret (hak_sealed.secrets.of)

#if HAK_HARDENED
/* From the kernel; where it has none to give, from what it gave the process at its start. */
void hak_secret_draw(void);
#else
HAK_INLINE void hak_secret_draw(void)
{
}
#endif

#endif
