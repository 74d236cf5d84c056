/* SPDX-License-Identifier: MIT
 * Live counters: under HAKMEM_STATS_SHM=1 a process shows its statistics in a file in memory, for
 * `hakmem stat PID`. The file has no name but that of a descriptor, /proc/PID/fd/N -> /memfd:hakmem.live, so it goes
 * with the process, however that ends. Readers map it read-only; the library alone writes, and never waits for them.
 *
 * The file is a header of 64 bytes, then records of 64. A record keeps its place and its name once it is there,
 * so a reader may hold on to it; `entries` only grows, and is released after the record. Every value is one
 * aligned word. `updates` is raised after each refresh. Names are the paths of the JSON statistics, with the texts
 * of an array's element in place of its index: "bins.refills", "os_calls.purge.madvise.bytes". */
#ifndef HAK_LIVE_H
#define HAK_LIVE_H

#include "core/base/words.h"

#define HAK_LIVE_FILE "hakmem.live"
#define HAK_LIVE_MAGIC "HAKSTAT1"
#define HAK_LIVE_NAME 56

struct hak_live_header {
    char magic[8];
    uint32_t header_size;
    _Atomic(uint32_t) entries;
    uint64_t pid;
    _Atomic(uint64_t) updates;
    uint64_t started_ns; /* CLOCK_REALTIME */
    uint32_t record_size;
    char reserved[20];
};

struct hak_live_record {
    char name[HAK_LIVE_NAME]; /* padded with zeros */
    _Atomic(uint64_t) value;
};

_Static_assert(sizeof(struct hak_live_header) == 64 && sizeof(struct hak_live_record) == 64, "readers know the layout");

/* All of these are for processes with HAKMEM_STATS_SHM=1 only. */

/* Brings the counters up to date, and makes the file if there is none that readers find: at the first maintenance step,
 * in a forked child, and where the program closed the descriptor. Called on slow paths without any lock, now and then;
 * does nothing where another thread is at it, or where a refresh would take more than 2 % of the time. */
void hak_live_refresh(void);
/* In a forked child, which makes a file of its own at its next refresh, so never if it execs at once. */
void hak_live_fork_child(void);

#endif
