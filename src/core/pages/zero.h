/* SPDX-License-Identifier: MIT
 * Hardened builds: blocks of no bytes, and zeros in freed ones. Each is an address of its own that nobody can read or
 * write. Without locks. Other builds serve them as blocks of one byte. */
#ifndef HAK_ZERO_H
#define HAK_ZERO_H

#include "core/base/sealed.h"

#if HAK_HARDENED
#include "core/hardened/on/zero.h"
#else
#include "core/hardened/off/zero.h"
#endif

#endif
