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
/* Draws both, apart from each other: whoever knows the address of a block knows none of the tables. Zones may lie anywhere
 * in the second and third quarter of the addresses, short of where programs are loaded; tables anywhere in the upper half of
 * the first one. */
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
#else
HAK_INLINE struct hak_places hak_fence_draw(uintptr_t quarter, size_t zones, size_t tables, uint64_t random)
{
    char *base = (char *)quarter + tables + (random % (quarter >> 2 >> HAK_SUPERSLAB_LG) << HAK_SUPERSLAB_LG);
    (void)zones;
    return (struct hak_places){base, base};
}

HAK_INLINE size_t hak_fence_gap(void)
{
    return 0;
}

HAK_INLINE void hak_fence_close_gaps(char *a, char *b)
{
    (void)a, (void)b;
}

HAK_INLINE int hak_fence_map(void **addr, size_t size, bool *fenced, enum hak_cause cause)
{
    *fenced = false;
    return hak_os_map(addr, size, PROT_READ | PROT_WRITE, cause);
}

HAK_INLINE int hak_fence_unmap(void *addr, size_t size, bool fenced, enum hak_cause cause)
{
    (void)fenced;
    return hak_os_unmap(addr, size, cause);
}

HAK_INLINE int hak_fence_remap(void **addr, size_t size, size_t new_size, bool *fenced, enum hak_cause cause)
{
    (void)fenced;
    return hak_os_remap(addr, size, new_size, true, cause);
}
#endif

#endif
