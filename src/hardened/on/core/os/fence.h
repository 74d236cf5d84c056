/* SPDX-License-Identifier: MIT
 * Hardened builds: inaccessible pages beside mappings, so that a program that writes beyond one stops there. Each takes
 * one or two of the mappings that a process may have; so HAKMEM_GUARD_PAGES bounds their number, and one that the
 * kernel refuses is left out. Other builds map without fences. */
#ifndef HAK_FENCE_H
#define HAK_FENCE_H

#include <sys/mman.h>

#include "core/os/os.h"

/* The start of the first zone of blocks, and the end of the tables. */
struct hak_places {
    char *zones, *tables_end;
};

/* Draws the addresses of zones and tables independently: the address of a block reveals nothing about the tables. Zones
 * may lie anywhere in the second and third quarter of the address space, below where programs are loaded; tables
 * anywhere in the upper half of the first quarter. */
struct hak_places hak_fence_draw(uintptr_t quarter, size_t zones, size_t tables, uint64_t random);
/* The size of the gap between two tables. */
size_t hak_fence_gap(void);
/* Makes two gaps inaccessible. */
void hak_fence_close_gaps(char *a, char *b);
/* Maps readable and writable pages. *fenced: an inaccessible page lies before and behind them, which `size` does not
 * count. Unmapping or resizing needs this value. */
int hak_fence_map(void **addr, size_t size, bool *fenced, enum hak_cause cause);

int hak_fence_unmap(void *addr, size_t size, bool fenced, enum hak_cause cause);
/* Resizes the mapping, which may move with its content. */
int hak_fence_remap(void **addr, size_t size, size_t new_size, bool *fenced, enum hak_cause cause);
/* Whether another fence is allowed. */
bool hak_fence_is_wanted(void);
/* Makes mapped, unused pages permanently inaccessible. */
bool hak_fence_close(void *addr, size_t size);

#endif
