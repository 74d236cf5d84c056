/* SPDX-License-Identifier: MIT
 * The maintenance step at the end of each slow entry. At intervals it runs a purge tick, which returns idle memory to
 * the kernel. The caller holds no lock. */
#ifndef HAK_MAINTENANCE_H
#define HAK_MAINTENANCE_H

#include "core/base/work.h"

HAK_NOINLINE void hak_maintain_now(void);

HAK_INLINE void hak_maintain(void)
{
    if (HAK_UNLIKELY(hak_work >= HAK_WORK_MAX || HAK_LOAD_RELAXED(&hak_purge_waits)))
        hak_maintain_now();
}

/* If a tick is due: all parts purge what has been idle. The work of a call is bounded; hak_purge_waits tells whether
 * more is idle. */
void hak_purge_tick(void);
/* In a forked child. */
void hak_maintenance_fork_child(void);
/* All parts purge free memory beyond `keep` bytes in total. Returns the bytes purged. */
size_t hak_purge_all(size_t keep);
/* Called before a request that would exceed the memory budget: purges everything idle. False: it would exceed the hard
 * limit nevertheless, and fails. The caller has entered no heap. */
bool hak_make_room(size_t bytes);
typedef int hak_reached_function(size_t wanted, void *context);
/* Sets the hard limit, and the program's function that is called before a request fails. */
void hak_limit_hard(size_t bytes, hak_reached_function *reached, void *context);
/* With HAKMEM_BACKGROUND=1 its thread starts, unless this process has it. The library has started. */
void hak_maintenance_background(void);

#endif
