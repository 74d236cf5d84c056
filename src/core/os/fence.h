/* SPDX-License-Identifier: MIT
 * Hardened builds: inaccessible pages beside mappings, so that a program that writes beyond one stops there. Each takes
 * one or two of the mappings that a process may have; so HAKMEM_GUARD_PAGES bounds their number, and one that the
 * kernel refuses is left out. Other builds map without fences. */
#ifndef HAK_FENCE_H
#define HAK_FENCE_H

#include <sys/mman.h>

#include "os.h"

/* The start of the first zone of blocks, and the end of the tables. */
struct hak_places {
    char *zones, *tables_end;
};

#if HAK_HARDENED
#include "core/hardened/on/fence.h"
#else
#include "core/hardened/off/fence.h"
#endif

#endif
