/* SPDX-License-Identifier: MIT
 * The cold part of a thread's heap: the slabs behind its bins, blocks of others on their way back, counters.
 * Descriptors are metadata and never unmapped. Each belongs to one thread, which alone touches what is not atomic;
 * a parked one, to who has taken it from the list (thread.h). */
#ifndef HAK_HEAP_H
#define HAK_HEAP_H

#include "cache.h"
#include "core/base/counters.h"
#include "core/base/lock.h"
#include "core/plugin.h"

#if HAK_CACHE_SLOTS
#define HAK_SLOTS_LG_MAX 13u /* of an array; holds the largest capacity that a setting can ask for */
#endif

/* The slabs behind one bin. */
struct hak_bin {
    struct hak_slab *slabs; /* ACTIVE slabs with free blocks; refills use the first */
    uint16_t owned_pages;   /* and their length */
    uint16_t refills;       /* the low bits of their number */
    uint16_t trips;         /* how much the thread uses the class (share.h) */
#if HAK_CACHE_LIST
    uint16_t interval; /* frees between two checks of the bin */
    uint16_t later;    /* frees beyond the next heartbeat until its next check */
#else
    uint8_t later;      /* array: heartbeats until its next check; cpu: frees beyond the next heartbeat */
#endif
    bool shrinking;           /* overflowed, and not refilled since */
    uint16_t batch;           /* blocks of the next refill; doubles up to the capacity */
    uint16_t remote_count;    /* blocks in the remote cache */
    uint16_t remote_capacity; /* one that makes as many, or, of an array, more, is looked at; 0 before the first one */
    uint8_t seen;             /* refills at the last look (hak_bins_scan), the low bits */
#if HAK_CACHE_SLOTS
    uint8_t remote_lg; /* log2 of the number of slots of the remote cache; 0 without any */
#endif
#if HAK_CACHE_ARRAY
    uint8_t slots_lg;     /* the same of the bin */
    uint8_t retired_room; /* frees that it has room for while its thread is parked, */
    uint16_t retired;     /* and blocks in it then */
    uint16_t given;       /* the room that it got last */
    uint16_t steady;      /* blocks; with fewer than these it has slots for a beat, and is not checked */
    void **slots;         /* the bin: the first one is NULL, then block by block, the one freed last at the end */
#endif
#if HAK_CACHE_SLOTS
    void **remote_cache; /* other threads' blocks that were freed here; NULL: no array yet */
#else
    void *remote_cache; /* the same, as a list */
#endif
};

/* Freed blocks that are held back (quarantine.h). */
struct hak_quarantine {
    void *first, *last;
    size_t bytes;
};

struct hak_heap {
    uint64_t tag;
    const struct hak_cache *cache; /* its thread's bins, for tools outside of the process; NULL where it has none */
    struct hak_heap *next, *prev; /* all live threads, or the parked, or the recycled ones */
    uint64_t retired_ms;          /* when it was parked last, */
    size_t retired_bytes;         /* and the bytes of blocks cut from its slabs then */
    void *local[HAK_NFRONTENDS];  /* the frontends' own, by their place in the table of parts */
    uint32_t flush_done;          /* the last of the trims' requests that it has followed */
    uint64_t looked_ms;           /* the time up to which its classes were looked at, in turn; 0: not yet, */
    unsigned look_next;           /* and the next one */
    uint64_t used_classes[(HAK_NCLASSES + 63) / 64]; /* bit i: bins[i] is not all zero */
    _Atomic(uint64_t) slabs;                         /* ACTIVE slabs owned */
    struct hak_counters counters;
    struct hak_quarantine quarantine[HAK_HARDENED];
#if HAK_CACHE_LIST
    void *retired_bin[HAK_NCLASSES];     /* its cache, while it is parked */
    uint64_t retired_room[HAK_NCLASSES]; /* inverted: HAK_ROOM_NEVER before the first time */
#endif
    struct hak_bin bins[HAK_NCLASSES];
#if HAK_CACHE_SLOTS
    void **spare_slots[HAK_SLOTS_LG_MAX + 1]; /* outgrown, by log2 of their number; linked through the first one */
    struct hak_slots_region *regions;         /* what slots are cut from, the last one first (slots.c), */
    uint32_t first_region_bytes;              /* and the length of the oldest */
    uint32_t slots_refused;                   /* requests that are refused at once */
#endif
#if HAK_CACHE_CPU
    struct hak_arrays *arrays;
    struct hak_lock lock; /* a processor's: who has it may use the rest as a thread may its own */
    unsigned cpu;
    bool forking;          /* who forks has it */
    void *kept;            /* of the blocks that a refill took, the one for the caller */
    _Atomic(bool) entered; /* since it was looked at last, */
    uint64_t idle_ms;      /* which is when it was idle at the latest; by who breaks up */
#endif
};

/* What a heap of this process belongs to, for reports. */
HAK_INLINE const char *hak_heap_owners(void)
{
    return hak_heaps_are_of_cpus() ? "processors" : "threads";
}

/* Calls `visit` for each class that the thread has used. */
HAK_INLINE void hak_heap_each_class(struct hak_heap *heap, void (*visit)(struct hak_heap *heap, unsigned cls))
{
    for (unsigned word = 0; word < sizeof heap->used_classes / sizeof heap->used_classes[0]; word++)
        for (uint64_t bits = heap->used_classes[word]; bits; bits &= bits - 1)
            visit(heap, word * 64 + (unsigned)__builtin_ctzll(bits));
}

#endif
