/* SPDX-License-Identifier: MIT
 * Live counters: with HAKMEM_STATS_SHM=1 a process publishes its statistics in a file in memory, for `hakmem stat PID`.
 * The file is only reachable through a descriptor, /proc/PID/fd/N -> /memfd:hakmem.live, so it disappears with the
 * process, however that ends. Readers map it read-only; only the library writes, and it never waits for readers.
 *
 * The file is a header of 64 bytes, then records of 64. A record never changes its index or its name, so a reader may
 * remember it. `entries` only grows, and is stored with release after the record. Every value is one aligned word.
 * `updates` is incremented after each refresh. Names are the paths of the JSON statistics, in which the texts of an
 * array's element replace its index: "bins.refills", "os_calls.purge.madvise.bytes". */
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

/* Updates the counters, and makes the file if readers would find none: at the first maintenance step, in a forked
 * child, and after the program closed the descriptor. Slow paths call it at intervals, holding no lock. Does nothing if
 * another thread is updating, or if updates would take more than 2 % of the time. */
void hak_live_refresh(void);
/* In a forked child, which makes a file of its own at its next refresh, so never if it execs at once. */
void hak_live_fork_child(void);

#endif
