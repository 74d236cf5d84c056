/* SPDX-License-Identifier: MIT
 * Follows the limits of a container. They set the memory budget, unless HAKMEM_LIMIT_MB does. Near a limit all idle
 * memory is purged, before the kernel reclaims memory in use. */
#ifndef HAK_CONTAINER_H
#define HAK_CONTAINER_H

#include "core/base/stats.h"

/* At start: HAKMEM_CGROUP is refused if it names no group. */
void hak_container_look(void);
/* Called by purge ticks, by one thread at a time. True: idle memory should be purged at once. */
bool hak_container_is_tight(uint64_t now_ms);

void hak_container_stats(struct hak_stats_writer *w);

#endif
