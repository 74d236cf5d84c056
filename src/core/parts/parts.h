/* SPDX-License-Identifier: MIT
 * Fills the table of parts (struct hak_part_table), once, for process/start.c: which frontend serves a class, which
 * backend supplies pages, which policy purges them. Also acquires slabs for heaps. */
#ifndef HAK_PARTS_H
#define HAK_PARTS_H

#include "core/base/counters.h"
#include "core/os/os.h"
#include "core/plugin.h"

/* Written by Meson from the options `frontends`, `backends` and `external`; each ends with NULL. */
extern const struct hak_frontend *const hak_frontends[];
extern const struct hak_backend *const hak_backends[];
extern const struct hak_release *const hak_releases[];

/* How long acquires took, by the backend's stage that served them; the last row counts those that no stage served. Only
 * with HAKMEM_SHARED_POOL_STAGE_STATS: reading the clock twice takes some 50 ns. */
extern HAK_HIDDEN struct hak_latency hak_stage_latencies[HAK_STAGES + 1];

/* Fills the table from the settings. */
void hak_parts_choose(void);
/* Calls the init function of each part. False without memory. */
bool hak_parts_init(void);

/* An ACTIVE slab of the class owned by `heap`, with a free block; NULL without memory. */
struct hak_slab *hak_parts_acquire_slab(struct hak_heap *heap, unsigned cls);

#endif
