/* SPDX-License-Identifier: MIT
 * What the process's cgroup (version 2) allows: the limits of a container, its own and those of the groups above. Read
 * where the heap is large enough to matter, and then now and then. No lock; by one thread at a time. */
#ifndef HAK_CGROUP_H
#define HAK_CGROUP_H

#include "core/base/stats.h"

struct hak_cgroup {
    uint64_t limit;   /* the least of memory.high and memory.max; UINT64_MAX where there is none */
    uint64_t current; /* what the group with that limit holds, all its processes, without page cache that is not in use */
    uint64_t stalled_us; /* time that its processes waited for memory so far (memory.pressure, "some") */
    bool near;        /* one of the groups, not only that one, holds more than seven eighths of its limit */
};

/* False where there is no such group, or HAKMEM_CGROUP=off. */
bool hak_cgroup_read(struct hak_cgroup *cgroup);

#endif
