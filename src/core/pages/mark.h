/* SPDX-License-Identifier: MIT
 * Hardened builds: the checks that free makes before it takes a small block. The block must have been handed out, and
 * carry no mark (link.h). Other builds: nothing. */
#ifndef HAK_MARK_H
#define HAK_MARK_H

#include "core/base/sizeclass.h"
#include "link.h"

#if HAK_HARDENED
#include "core/hardened/on/mark.h"
#else
#include "core/hardened/off/mark.h"
#endif

#endif
