/* SPDX-License-Identifier: MIT
 * A heap: the slabs behind its bins, blocks of other heaps that it will return, counters. A thread or a CPU owns it, or
 * it is the orphan (heaps.h). Its bins lie in the owner's cache (cache.h). Heaps are metadata and never unmapped. Only
 * the owner touches fields that are not atomic; for a heap that a fork left, the thread that dissolves it. */
#ifndef HAK_HEAP_H
#define HAK_HEAP_H

#include "cache.h"
#include "core/base/block_policy.h"
#include "core/base/counters.h"
#include "core/base/lock.h"
#include "core/plugin.h"

#define HAK_SWINGS 8u /* after so many swings an array becomes longer */
#define HAK_BURST 16u /* so many overflows or flushes without a refill mean that the program frees a lot */

/* The slabs behind one bin. */
struct hak_bin {
    struct hak_slab *slabs;         /* ACTIVE slabs with free blocks; refills use the first */
    uint16_t owned_pages;           /* the pages of these slabs */
    uint16_t refills;               /* number of refills (low 16 bits) */
    uint8_t overflows;              /* overflows since the last refill: none, some, or with arrays how many */
    uint16_t batch;                 /* blocks of the next refill; doubles up to the capacity */
    uint16_t remote_count;          /* blocks in the remote cache */
    uint16_t remote_capacity;       /* blocks that it takes before a check; 0 before the first block */
    uint8_t flushes;                /* flushes of the remote cache since the last refill, up to HAK_BURST */
    uint8_t swings;                 /* times that it was refilled after it had overflowed, up to HAK_SWINGS */
    uint8_t seen;                   /* `refills` at the last scan (hak_bins_scan; low 8 bits) */
    struct hak_cache_bin own;       /* what the chosen cache keeps */
    hak_remote_blocks remote_cache; /* blocks of other heaps that were freed here */
};

/* Freed blocks that are held back (quarantine.h). */
struct hak_quarantine {
    void *first, *last;
    size_t bytes;
};

struct hak_heap {
    uint64_t tag;
    struct hak_cache *cache;      /* its thread's bins; NULL while the thread starts, and once it has ended */
    _Atomic(bool) changing;       /* a slow path of its thread has begun, and not ended */
    struct hak_heap *next, *prev; /* the heaps in use, or the recycled ones */
    uint32_t busy_in;             /* the period in which its thread last took a step (thread.c) */
    uint32_t flush_done;          /* the last flush request that it has followed */
    uint64_t scanned_ms;          /* the time up to which its classes were scanned, in turn; 0: no scan has run */
    unsigned scan_next;           /* the class to scan next */
    uint32_t random;              /* see hak_bin_random */
    uint64_t used_classes[(HAK_NCLASSES + 63) / 64]; /* bit i: bins[i] is not all zero */
    _Atomic(uint64_t) slabs;                         /* ACTIVE slabs owned */
    struct hak_counters counters;
    struct hak_quarantine quarantine[HAK_HARDENED];
    struct hak_arrays *arrays; /* the arrays of its CPU; NULL: a thread owns the heap */
    struct hak_lock lock;      /* the thread that holds it may use the heap of a CPU as if the heap were its own */
    unsigned number;           /* the number of its CPU */
    bool forking;              /* the thread that forks holds the lock */
    void *kept;                /* the block of a refill that the caller gets */
    uint64_t scan_ms;          /* when the heap of a CPU was last scanned */
    struct hak_bin bins[HAK_NCLASSES];
    struct hak_cache_heap own;
};

/* Between these two calls the heap's thread changes it, or its bins other than by one malloc or free. If another thread
 * forks meanwhile, the child leaves the heap alone (hak_heaps_fork_child). An inner pair ends the outer one, so nothing
 * may follow it there. */
HAK_INLINE void hak_heap_begin_change(struct hak_heap *heap)
{
    if (!HAK_BLOCKS_ARE_BARE)
        return;
    HAK_STORE_RELAXED(&heap->changing, true);
    HAK_KEEP_ORDER();
}

HAK_INLINE void hak_heap_end_change(struct hak_heap *heap)
{
    if (!HAK_BLOCKS_ARE_BARE)
        return;
    HAK_KEEP_ORDER();
    HAK_STORE_RELAXED(&heap->changing, false);
}

/* This is a macro, so that builds without such heaps link without optimisation, too. */
#define hak_heap_is_of_cpu(heap) (HAK_CPU_HEAPS && (heap)->arrays)

/* Calls `visit` for each class that the heap has used. */
HAK_INLINE void hak_heap_each_class(struct hak_heap *heap, void (*visit)(struct hak_heap *heap, unsigned cls))
{
    for (unsigned word = 0; word < sizeof heap->used_classes / sizeof heap->used_classes[0]; word++)
        for (uint64_t bits = heap->used_classes[word]; bits; bits &= bits - 1)
            visit(heap, word * 64 + (unsigned)__builtin_ctzll(bits));
}

#endif
