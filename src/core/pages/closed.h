/* SPDX-License-Identifier: MIT
 * Hardened builds: pages that nobody can read or write while they are free. Those of large blocks close when the block is
 * freed, all others when they go back to the kernel; they open when they are taken. So a write after free stops the
 * program, and what reads as zero is zero. Where the kernel refuses, or addresses are limited, pages stay open. Other
 * builds: nothing. */
#ifndef HAK_CLOSED_H
#define HAK_CLOSED_H

#include "core/base/words.h"

#if HAK_HARDENED
#include "core/hardened/on/closed.h"
#else
#include "core/hardened/off/closed.h"
#endif

#endif
