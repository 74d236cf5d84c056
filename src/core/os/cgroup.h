/* SPDX-License-Identifier: MIT
 * The memory limits of the process's cgroup (version 2) and of the groups above it: the limits of a container. Read
 * once the heap is large enough to matter, and then at intervals. No lock; one thread at a time calls it. */
#ifndef HAK_CGROUP_H
#define HAK_CGROUP_H

#include "core/base/stats.h"

struct hak_cgroup {
    uint64_t limit;      /* the lowest memory.high or memory.max; UINT64_MAX if there is none */
    uint64_t current;    /* memory of all processes in the group with that limit, without inactive page cache */
    uint64_t stalled_us; /* total time that its processes waited for memory (memory.pressure, "some") */
    bool near;           /* some group, not necessarily that one, holds more than 7/8 of its limit */
};

/* False if there is no such group, or with HAKMEM_CGROUP=off. */
bool hak_cgroup_read(struct hak_cgroup *cgroup);
/* The CPUs on which the process may run, or as many as its quota of CPU time is worth, rounded up, if they are fewer;
 * as the kernel told it at the first call. */
unsigned hak_cpus(void);
/* Resident bytes of the process, whoever mapped them; SIZE_MAX if the kernel does not tell. */
size_t hak_resident_bytes(void);

#endif
