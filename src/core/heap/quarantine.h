/* SPDX-License-Identifier: MIT
 * The quarantine of hardened builds, off by default: free overwrites each small block and holds it back for a while.
 * When a block leaves the quarantine, its bytes must be as free left them. Each thread has a queue of blocks, linked
 * through their first words, oldest first. If a setting turns it on, the thread's tag matches no page, so all frees
 * take the slow path, which calls this. So it costs nothing while off. Other builds: nothing. */
#ifndef HAK_QUARANTINE_H
#define HAK_QUARANTINE_H

#include "heap.h"

#if HAK_HARDENED
#include "core/hardened/on/quarantine.h"
#else
#include "core/hardened/off/quarantine.h"
#endif

#endif
