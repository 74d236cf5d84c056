/* SPDX-License-Identifier: MIT
 * Heeds the limits of a container. The memory budget follows them where HAKMEM_LIMIT_MB sets none. Near them all that
 * is idle is purged, before the kernel reclaims what is in use. */
#ifndef HAK_CONTAINER_H
#define HAK_CONTAINER_H

#include "core/base/stats.h"

/* From a purge tick, by one thread at a time. Whether idle memory is to go back at once. */
bool hak_container_is_tight(uint64_t now_ms);
void hak_container_stats(struct hak_stats_writer *w);

#endif
