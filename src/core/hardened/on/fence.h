/* SPDX-License-Identifier: MIT
 * See core/os/fence.h. */
#ifndef HAK_ON_FENCE_H
#define HAK_ON_FENCE_H

/* Draws both, apart from each other: whoever knows the address of a block knows none of the tables. Zones may lie
 * anywhere in the second and third quarter of the addresses, short of where programs are loaded; tables anywhere in the
 * upper half of the first one. */
struct hak_places hak_fence_draw(uintptr_t quarter, size_t zones, size_t tables, uint64_t random);
/* Bytes that are left out between two tables. */
size_t hak_fence_gap(void);
/* Makes two gaps inaccessible. */
void hak_fence_close_gaps(char *a, char *b);
/* To read and write; *fenced: a page that nobody can read or write lies before it and behind it, and is not counted in
 * `size`. Whoever unmaps or resizes it has to say. */
int hak_fence_map(void **addr, size_t size, bool *fenced, enum hak_cause cause);
int hak_fence_unmap(void *addr, size_t size, bool fenced, enum hak_cause cause);
/* It may move, and brings its content along. */
int hak_fence_remap(void **addr, size_t size, size_t new_size, bool *fenced, enum hak_cause cause);
/* Whether there may be one more. */
bool hak_fence_is_wanted(void);
/* Makes pages that are mapped, and nobody's, inaccessible for ever. */
bool hak_fence_close(void *addr, size_t size);

#endif
