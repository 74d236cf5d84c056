/* SPDX-License-Identifier: MIT
 * Hardened builds, where the settings ask for it: each small block is overwritten when it is freed, and waits for a
 * while before it can serve again. When it leaves, its bytes must be as free left them. Blocks wait by thread, the one
 * freed longest ago first, linked through their first words. Where a setting is on, a thread's tag matches no page: all
 * frees take the slow path, which asks here. So it costs nothing where it is off. Other builds: nothing. */
#ifndef HAK_QUARANTINE_H
#define HAK_QUARANTINE_H

#include "heap.h"

#if HAK_HARDENED
#include "core/hardened/on/quarantine.h"
#else
#include "core/hardened/off/quarantine.h"
#endif

#endif
