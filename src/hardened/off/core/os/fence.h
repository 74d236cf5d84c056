/* SPDX-License-Identifier: MIT
 * For builds that are not hardened: see hardened/on/core/os/fence.h. */
#ifndef HAK_FENCE_H
#define HAK_FENCE_H

#include <sys/mman.h>

#include "core/os/os.h"

/* The start of the first zone of blocks, and the end of the tables. */
struct hak_places {
    char *zones, *tables_end;
};

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
