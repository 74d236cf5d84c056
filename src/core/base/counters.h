/* SPDX-License-Identifier: MIT
 * What threads count. Each has counters of its own, which no other thread writes, so counting takes no atomic
 * read-modify-write. The statistics add them up. The fast path counts in counting builds alone. */
#ifndef HAK_COUNTERS_H
#define HAK_COUNTERS_H

#include "block_policy.h"
#include "sizeclass.h"

#define HAK_COUNTERS(X)                                                \
    X(mallocs, "counting builds: requests of at most 52 KiB")          \
    X(frees, "counting builds: frees of any size")                     \
    X(refills, "trips to a slab for more blocks")                      \
    X(refill_blocks, "blocks that they brought")                       \
    X(shared_refills, "trips of those to a slab given up again")       \
    X(borrowed, "blocks of a larger class that served")                \
    X(checks, "times that a bin was checked")                          \
    X(overflows, "checks that found more than the bin keeps")          \
    X(drained_blocks, "own blocks given back to slabs")                \
    X(remote_blocks, "blocks of others given back")                    \
    X(remote_batches, "compare-and-swaps that did it")                 \
    X(remote_early, "remote blocks collected before own ones")         \
    X(remote_low_water, "remote blocks collected as own ones ran low") \
    X(remote_saved, "remote blocks collected in place of a refill")    \
    X(slabs_acquired, "slabs taken from a frontend")                   \
    X(slabs_refused, "requests for a slab that found none")            \
    X(slabs_released, "slabs given back to a frontend")                \
    X(remote_reused, "blocks of others that served a refill")          \
    X(reclaimed, "FULL slabs taken back by their last owner")          \
    X(idle_classes, "bins cut in half, as they needed no refill")      \
    X(prewarmed, "blocks put into bins ahead of use")                  \
    HAK_HARDENED_COUNTERS(X)

#define HAK_STAGES 16 /* of a backend, at most: a start with more stops with one line */
#define HAK_COUNTED_STATES 6

/* Sums are taken over all members as one array. */
struct hak_counters {
#define X(name, meaning) _Atomic(uint64_t) name;
    HAK_COUNTERS(X)
#undef X
    _Atomic(uint64_t) transitions[HAK_COUNTED_STATES][HAK_COUNTED_STATES]; /* of slabs, [from][to] */
    struct hak_class_counters {
        _Atomic(uint64_t) refills, served; /* trips; blocks of theirs and of frees, without those drained */
    } classes[HAK_COUNTED_CLASSES];
    _Atomic(uint64_t) stages[HAK_STAGES]; /* the backend's own: what each of its stages served */
};

/* The calling thread's counters. NULL where it has none: then hak_counters_nobodys counts. */
extern HAK_HIDDEN HAK_THREAD_LOCAL struct hak_counters *hak_counters_own;
extern struct hak_counters hak_counters_nobodys;

/* By the thread whose counter it is. */
HAK_INLINE void hak_count(_Atomic(uint64_t) *counter, uint64_t n)
{
    HAK_STORE_RELAXED(counter, HAK_LOAD_RELAXED(counter) + n);
}

/* Count, in the calling thread: a slab's change of state; a slab or run that a stage of the backend found. */
void hak_count_transition(unsigned from, unsigned to);
void hak_count_stage(unsigned stage);
void hak_counters_add(struct hak_counters *sum, const struct hak_counters *c);

#endif
