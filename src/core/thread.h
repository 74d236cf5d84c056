/* SPDX-License-Identifier: MIT
 * A thread's cold part: the slabs behind its bins, foreign blocks on their way back, counters.
 * Descriptors are metadata and never unmapped. When a thread ends, its descriptor is parked with the blocks and
 * slabs it has, if they are few, and the next thread to start goes on with them. After the purge delay, or when
 * memory is needed elsewhere, a parked one is broken up: its slabs become PARTIAL, FULL or EMPTY, so that nothing
 * refers to the thread any more, and the descriptor is recycled. */
#ifndef HAK_THREAD_H
#define HAK_THREAD_H

#include "cache.h"

#define HAK_MAX_FRONTENDS 8

/* The slabs behind one bin of one thread. */
struct hak_bin {
    struct hak_slab *slabs; /* ACTIVE slabs with free blocks; refills use the first */
    uint16_t interval;      /* frees between two looks at the bin */
    uint16_t later;         /* of those: to come after the next heartbeat */
    uint16_t batch;         /* blocks of the next refill; doubles up to the limit */
    uint16_t foreign_room;  /* foreign blocks until the list is full; 0 for an empty list, too */
    bool refilled;          /* since the thread started, or was prewarmed */
    bool shrinking;         /* overflowed, and not refilled since */
    int32_t parked_room;    /* the bin's room while the thread is parked */
    void *foreign;          /* other threads' blocks that were freed here */
    void *untouched;        /* the first block after prewarming: while it is the first, none was used */
    void *parked;           /* the bin's blocks while the thread is parked */
};

/* Written by the thread alone, read by the statistics. */
#define HAK_THREAD_COUNTERS(X)                                     \
    X(mallocs, "counting builds: requests of at most 52 KiB")      \
    X(frees, "counting builds: frees of any size")                 \
    X(refills, "trips to a slab for more blocks")                  \
    X(refill_blocks, "blocks that they brought")                   \
    X(borrowed, "blocks of a larger class that served")            \
    X(looks, "times that a bin was looked at")                     \
    X(overflows, "looks that found more than the bin keeps")       \
    X(drained_blocks, "own blocks given back to slabs")            \
    X(remote_blocks, "foreign blocks given back")                  \
    X(remote_batches, "compare-and-swaps that did it")             \
    X(remote_early, "remote blocks collected before own ones")     \
    X(remote_low_water, "remote blocks collected as own ones ran low") \
    X(remote_saved, "remote blocks collected in place of a refill") \
    X(slabs_acquired, "slabs taken from a frontend")               \
    X(slabs_released, "slabs given back to a frontend")            \
    X(foreign_reused, "foreign blocks that served a refill")        \
    X(reclaimed, "FULL slabs taken back by their last owner")      \
    X(prewarmed, "blocks put into bins ahead of use")

#define HAK_STAGES 8

/* Sums are taken over all members as one array. */
struct hak_thread_counters {
#define X(name, meaning) _Atomic(uint64_t) name;
    HAK_THREAD_COUNTERS(X)
#undef X
    _Atomic(uint64_t) transitions[HAK_SLAB_NSTATES][HAK_SLAB_NSTATES]; /* of slabs, [from][to] */
    _Atomic(uint64_t) stages[HAK_STAGES]; /* the backend's own: slabs that each of its stages served */
};

#define HAK_COUNT(t, name, n)                                                                          \
    atomic_store_explicit(&(t)->counters.name,                                                          \
                          atomic_load_explicit(&(t)->counters.name, memory_order_relaxed) + (uint64_t)(n), \
                          memory_order_relaxed)

struct hak_thread {
    uint64_t tag;
    struct hak_thread *next, *prev; /* all live threads, or the parked, or the recycled ones */
    uint64_t parked_ms;             /* when it was parked last, */
    size_t parked_bytes;            /* and the bytes of blocks cut from its slabs then */
    void *local[HAK_MAX_FRONTENDS]; /* the frontends' own, by their place in the dispatch table */
    _Atomic(uint32_t) drain_asked;  /* a trim asks for this thread's bins; done at its next slow path */
    uint32_t drain_done;
    uint32_t clock_work; /* blocks since the clock was looked at */
    uint64_t used_bins[(HAK_NBINS + 63) / 64]; /* bit i: bins[i] is not all zero */
    _Atomic(uint64_t) slabs;        /* ACTIVE slabs owned */
    struct hak_thread_counters counters;
    struct hak_bin bins[HAK_NBINS];
};

/* The calling thread's descriptor, made on first use. NULL once the thread's destructor ran, before the
 * library could be initialised, or without memory: callers then use the orphan. */
struct hak_thread *hak_thread_get(void);
/* Shared by all threads that have no descriptor; between the two calls the caller has it alone. Nobody's
 * tag is its tag, so blocks of its slabs always come back as foreign ones. */
struct hak_thread *hak_thread_orphan_acquire(void);
void hak_thread_orphan_release(void);

/* From the library's constructor: makes the key whose destructor ends threads. */
void hak_thread_constructor(void);
/* In a forked child: forgets the other threads; what they owned stays pinned, and is counted. */
void hak_thread_fork_child(void);
/* Asks every thread to empty its bins at its next slow path. */
void hak_thread_ask_drain(void);
/* Breaks up the threads that were parked then or before. The caller holds no lock but the orphan's. */
void hak_thread_break_up(uint64_t since_ms);

/* Sums the counters of all threads, dead ones included. */
struct hak_thread_totals {
    uint64_t threads, started, parked, resumed, pinned_slabs, active_slabs;
    struct hak_thread_counters counters;
};
void hak_thread_totals(struct hak_thread_totals *totals);

extern struct hak_lock hak_thread_lock, hak_orphan_lock;

#endif
