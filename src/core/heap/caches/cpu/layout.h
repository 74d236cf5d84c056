/* SPDX-License-Identifier: MIT
 * What the cache `cpu` keeps. See heap/caches/layout.h. */
#ifndef HAK_CACHES_CPU_LAYOUT_H
#define HAK_CACHES_CPU_LAYOUT_H

#include "core/heap/caches/slots/layout.h"

/* The slots of each class follow those of the previous one. The first slot is NULL, so that malloc detects an empty
 * array by the load that it needs anyway. */
struct hak_arrays {
    void **top[HAK_NCLASSES];   /* the last slot that holds a block */
    void **end[HAK_NCLASSES];   /* the last slot */
    int32_t room[HAK_NCLASSES]; /* frees until the array is checked: at most its free slots; negative: now */
    void *slots[];
};
extern HAK_HIDDEN struct hak_arrays hak_arrays_closed; /* of no CPU: empty, without room */

#define HAK_CACHE_FIELDS \
    struct hak_arrays *arrays; /* the thread's own, where restartable sequences are off; else the closed ones */

#define HAK_BIN_FIELDS uint8_t remote_lg; /* log2 of the number of slots of the remote cache; 0 without any */

#define HAK_HEAP_CLEARED_FIELDS
#define HAK_HEAP_FIELDS                                                                                            \
    HAK_HEAP_SLOTS_FIELDS                                                                                          \
    struct hak_arrays *arrays;                                                                                     \
    struct hak_lock lock; /* of a CPU's heap: the thread that holds it may use the rest as if the heap were its */ \
    unsigned number; /* of its CPU; of a thread's heap, if not 0, one of its own */                                \
    bool forking;     /* the thread that forks holds the lock */                                                   \
    void *kept;       /* of the blocks that a refill took, the one for the caller */                               \
    uint64_t scan_ms; /* of a CPU: the time of the last scan; under the lock */

#endif
