/* SPDX-License-Identifier: MIT
 * The maintenance: what the slow entries end in. Now and then it is a purge tick: memory that nobody wanted for a while
 * goes back to the kernel. Then it refreshes the live counters. The caller holds no lock. */
#ifndef HAK_MAINTENANCE_H
#define HAK_MAINTENANCE_H

#include "core/base/work.h"

HAK_NOINLINE void hak_maintain_now(void);

HAK_INLINE void hak_maintain(void)
{
    if (HAK_UNLIKELY(hak_work >= HAK_WORK_MAX || HAK_LOAD_RELAXED(&hak_purge_waits)))
        hak_maintain_now();
}

/* If one is due: all parts purge what has been idle. A call is bounded; hak_purge_waits tells whether more is idle. */
void hak_purge_tick(void);
/* In a forked child. */
void hak_maintenance_fork_child(void);
/* All parts purge what is free beyond `keep` bytes, which they share. Returns the bytes. */
size_t hak_purge_all(size_t keep);
/* Before a request that would pass the memory budget: everything idle goes. */
void hak_make_room(size_t bytes);
/* HAKMEM_BACKGROUND=1: its thread starts, unless this process has one. */
void hak_maintenance_background(void);

#endif
