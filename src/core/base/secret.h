/* SPDX-License-Identifier: MIT
 * Hardened builds: numbers that the process draws once, before its first block, and keeps in sealed memory. */
#ifndef HAK_SECRET_H
#define HAK_SECRET_H

#include "sealed.h"

#define hak_secret (hak_sealed.secrets.of)

#if HAK_HARDENED
#include "core/hardened/on/secret.h"
#else
#include "core/hardened/off/secret.h"
#endif

#endif
