/* SPDX-License-Identifier: MIT
 * Hardened builds: blocks of zero bytes, and clearing of freed blocks. Each block of zero bytes has an address of its
 * own, which is inaccessible. No locks. Other builds serve them as blocks of one byte. */
#ifndef HAK_ZERO_H
#define HAK_ZERO_H

#include "core/base/sealed.h"

#if HAK_HARDENED
#include "core/hardened/on/zero.h"
#else
#include "core/hardened/off/zero.h"
#endif

#endif
