/* SPDX-License-Identifier: MIT
 * Hardened builds: inaccessible pages beside mappings, so that who writes beyond one stops there. Each takes a mapping
 * or two of those that a process may have; so HAKMEM_GUARD_PAGES bounds their number, and where the kernel refuses one
 * it is left out. Other builds map as the door does. */
#ifndef HAK_FENCE_H
#define HAK_FENCE_H

#include <sys/mman.h>

#include "os.h"

/* Where the first zone of blocks begins, and where the tables beside it end. */
struct hak_places {
    char *zones, *tables_end;
};

#if HAK_HARDENED
#include "core/hardened/on/fence.h"
#else
#include "core/hardened/off/fence.h"
#endif

#endif
