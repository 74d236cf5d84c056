/* SPDX-License-Identifier: MIT
 * What the statistics contain, and when they are written. */
#ifndef HAK_REPORT_H
#define HAK_REPORT_H

#include "core/base/stats.h"

#define HAK_STATS_SCHEMA 2 /* docs/stats.schema.json: raised when a name goes or changes its meaning */

/* What counts or measures, without settings and tables of classes. */
void hak_stats_counters(struct hak_stats_writer *w);
/* Writes everything to fd. 0 or -errno of the write that failed. */
int hak_stats_write(int fd, bool json);
/* The same to where the settings say, as text unless HAKMEM_STATS=json. */
void hak_stats_now(void);
/* What HAKMEM_STATS and its relatives ask for at the end of the process. */
void hak_stats_at_exit(void);

/* Blocks and bytes by the conservation laws; see report.c. */
struct hak_census {
    uint64_t pages[8]; /* 64 KiB pages by state of their slab; free dirty ones count as EMPTY */
    uint64_t returned; /* free ones that went back to the kernel */
    uint64_t carved, free, used, remote, capacity;
    uint64_t free_bytes, remote_bytes, outstanding_bytes, live_large, large_bytes;
    uint64_t held_bytes; /* usable in blocks and spans that neither a slab nor its remote list has; bins may */
    uint64_t violations;
    uint64_t free_runs;   /* of pages that no slab and no span uses, and rests of slabs that were not cut yet */
};
/* Walks all page descriptors. Exact when no other thread allocates meanwhile. */
void hak_stats_census(struct hak_census *census);
/* Of its held bytes those that are in no bin of the calling thread and in no retired heap. Not for signal handlers. */
uint64_t hak_stats_held(const struct hak_census *census);

#endif
