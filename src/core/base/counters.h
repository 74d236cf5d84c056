/* SPDX-License-Identifier: MIT
 * The counters of threads. Each thread has its own, which no other thread writes, so counting needs no atomic
 * read-modify-write. The statistics add them up. The fast path counts only in counting
 * builds (-Dstats=true); others do not report mallocs and frees, the first two. */
#ifndef HAK_COUNTERS_H
#define HAK_COUNTERS_H

#include "block_policy.h"
#include "sizeclass.h"

#define HAK_COUNTERS(X)                                                \
    X(mallocs, "counting builds: requests of at most 52 KiB")          \
    X(frees, "counting builds: frees of any size")                     \
    X(refills, "refills of a bin from a slab")                         \
    X(refill_blocks, "blocks that refills took")                       \
    X(borrowed, "requests served by a larger class")                   \
    X(checks, "checks of a bin")                                       \
    X(overflows, "checks that found a bin beyond its capacity")        \
    X(drained_blocks, "blocks put into own slabs, or in visits")       \
    X(remote_blocks, "blocks put on the remote lists of slabs")        \
    X(remote_batches, "compare-and-swaps that returned them")          \
    X(remote_early, "remote blocks collected before own ones")         \
    X(remote_low_water, "remote blocks collected as own ones ran low") \
    X(remote_saved, "remote blocks collected in place of a refill")    \
    X(slabs_acquired, "slabs taken from a frontend")                   \
    X(slabs_refused, "requests for a slab that found none")            \
    X(slabs_released, "slabs released to a frontend")                  \
    X(remote_reused, "remote blocks reused by a refill")               \
    X(reclaimed, "FULL slabs reclaimed by their last owner")           \
    X(idle_classes, "bins halved because they needed no refill")       \
    X(prewarmed, "blocks put into bins ahead of use")                  \
    HAK_HARDENED_COUNTERS(X)

enum {
#define X(name, meaning) HAK_COUNTER_##name,
    HAK_COUNTERS(X)
#undef X
        HAK_NCOUNTERS
};
extern const char hak_counter_names[HAK_NCOUNTERS][20];

#define HAK_STAGES 16 /* most stages of a backend; a program with more stops at start with one line */
#define HAK_COUNTED_STATES 7

/* All members have one type: sums treat the structure as an array. */
struct hak_counters {
#define X(name, meaning) _Atomic(uint64_t) name;
    HAK_COUNTERS(X)
#undef X
    _Atomic(uint64_t) transitions[HAK_COUNTED_STATES][HAK_COUNTED_STATES]; /* changes of slabs, [from][to] */
    struct hak_class_counters {
        _Atomic(uint64_t) refills, served; /* refills; blocks from refills and frees, minus drained ones */
    } classes[HAK_COUNTED_CLASSES];
    _Atomic(uint64_t) stages[HAK_STAGES]; /* requests that each stage of the backend served */
    _Atomic(uint64_t) allocated;          /* its last changes of hak_allocated, not added yet */
};

/* The calling thread's counters; NULL if it has none, and then hak_counters_nobodys counts. */
extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_counters *hak_counters_own;
extern struct hak_counters hak_counters_nobodys;

/* Called by the thread that owns the counter. */
HAK_INLINE void hak_count(_Atomic(uint64_t) *counter, uint64_t n)
{
    HAK_STORE_RELAXED(counter, HAK_LOAD_RELAXED(counter) + n);
}

/* Counts for the calling thread. */
#define HAK_COUNT_HERE(member)                                \
    do {                                                      \
        if (HAK_LIKELY(hak_counters_own))                     \
            hak_count(&hak_counters_own->member, 1);          \
        else                                                  \
            HAK_ADD_RELAXED(&hak_counters_nobodys.member, 1); \
    } while (0)

/* Usable bytes of allocated blocks of slabs and of spans, without those on remote lists. A heap adds what it took and
 * gave back (modulo 2^64) when that exceeds HAK_ALLOCATED_OWN, and at each maintenance step of its thread. */
#define HAK_ALLOCATED_OWN ((uint64_t)1 << 20)
extern _Atomic(uint64_t) hak_allocated;
void hak_count_allocated(uint64_t bytes);
void hak_publish_allocated(struct hak_counters *c);

/* Count, for the calling thread, a slab's change of state, and a slab or run that a stage of the backend found. */
void hak_count_transition(unsigned from, unsigned to);
void hak_count_stage(unsigned stage);

void hak_counters_add(struct hak_counters *sum, const struct hak_counters *c);

#endif
