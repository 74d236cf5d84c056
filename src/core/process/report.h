/* SPDX-License-Identifier: MIT
 * The content of the statistics, and when they are written. */
#ifndef HAK_REPORT_H
#define HAK_REPORT_H

#include "core/base/sizeclass.h"
#include "core/base/stats.h"

#define HAK_STATS_SCHEMA 2 /* docs/stats.schema.json: incremented when a name disappears or changes its meaning */

/* Writes everything in the writer's form: to its descriptor, or only numbers, one by one. */
void hak_stats_collect(struct hak_stats_writer *w);
/* Writes everything to fd. 0, or -errno of the write that failed. */
int hak_stats_write(int fd, bool json);
/* The same, to the destination that the settings name, as text unless HAKMEM_STATS says otherwise. */
void hak_stats_now(void);
/* With HAKMEM_STATS=prometheus, from the thread that ticks: rewrites the file, at most every ten seconds. */
void hak_stats_tick(uint64_t now_ms);
/* Writes what HAKMEM_STATS and related settings request at exit. */
void hak_stats_at_exit(void);

/* Blocks and bytes by the conservation laws; see report.c. */
struct hak_census {
    uint64_t pages[8]; /* 64 KiB pages by state of their slab; free dirty ones count as EMPTY */
    uint64_t returned; /* free pages that were purged */
    uint64_t carved, free, used, remote, capacity;
    uint64_t free_bytes, remote_bytes, allocated_bytes, live_large, large_bytes;
    uint64_t held_bytes;              /* usable bytes of allocated blocks and spans; some blocks may lie in bins */
    uint64_t allocated[HAK_NCLASSES]; /* blocks, by class */
    uint64_t slabs[HAK_NCLASSES], full[HAK_NCLASSES];
    uint64_t violations;
    uint64_t free_runs; /* runs of free pages, and the parts of slabs not yet carved */
};

/* Walks all page descriptors. Exact if no other thread allocates in the meantime. */
void hak_stats_census(struct hak_census *census);
/* The held bytes that are in no bin of the calling thread and in no heap that a fork left. Not for signal handlers. */
uint64_t hak_stats_held(const struct hak_census *census);

#endif
