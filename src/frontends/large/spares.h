/* SPDX-License-Identifier: MIT
 * Direct mappings that the program no longer uses. Where unmapping would split a mapping, and the process has half of
 * vm.max_map_count, a freed one is purged instead, and its addresses serve a later request. Any thread may call these
 * functions. */
#ifndef LARGE_SPARES_H
#define LARGE_SPARES_H

#include "registry.h"

/* A spare of at least `size` bytes, detached and accessible, which reads as zero if `zero`; NULL: none fits. */
struct mapping *hak_spares_take(size_t size, bool zero);
/* Unmaps a detached mapping, or keeps its addresses. */
void hak_spares_put(struct mapping *m);
/* Makes a detached mapping longer by the spares behind it; false: they do not suffice. */
bool hak_spares_extend(struct mapping *m, size_t size);

#endif
