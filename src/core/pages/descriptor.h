/* SPDX-License-Identifier: MIT
 * The descriptor of a 64 KiB page. That of a run's first page describes the whole run: a slab, a span, or free pages.
 */
#ifndef HAK_DESCRIPTOR_H
#define HAK_DESCRIPTOR_H

#include "core/base/counters.h"

#define HAK_CLASS_SPAN 0xffu /* `cls` of a span, which holds one large block */

enum hak_slab_state {
    HAK_SLAB_UNUSED, /* zero: never used, or part of a longer run */
    HAK_SLAB_ACTIVE,
    HAK_SLAB_FULL,
    HAK_SLAB_PARTIAL,
    HAK_SLAB_EMPTY, /* free, its pages dirty */
    HAK_SLAB_SPAN,  /* one large block */
    HAK_SLAB_ARENA, /* of an arena (heap/arena.h) */
    HAK_SLAB_NSTATES
};
_Static_assert(HAK_SLAB_NSTATES == HAK_COUNTED_STATES, "each transition has a counter");

struct hak_heap;

struct hak_slab {
    /* used by the owner, or under the lock of the list that holds the slab */
    _Alignas(2 * HAK_CACHELINE) struct hak_slab *next;
    struct hak_slab *prev;
    void *free; /* blocks collected from others, and those freed by the owner if there is no bitmap */
    char *base;
    uint32_t free_count; /* blocks on that list */
    uint32_t used;       /* blocks allocated: live, in a bin, or in a remote cache or list */
    uint32_t carved;     /* blocks carved so far */
    uint32_t capacity;   /* blocks in all */
    uint32_t stride;
    uint16_t pages;
    uint8_t cls;
    uint8_t listed : 1;      /* stands on a list */
    uint8_t taken_at : 7;    /* about when a block was last taken from the bitmap (hak_slab_time) */
    uint32_t marked;         /* free blocks in the bitmap */
    uint32_t bitmap_divisor; /* 2^32 / stride, rounded up; 0 without a bitmap */
    /* used by any thread */
    _Alignas(HAK_CACHELINE) _Atomic(uint64_t) word; /* state, remote list: see slab.c */
    _Atomic(struct hak_heap *) owner;
    uint16_t head_offset; /* distance in pages to the slab's first page; stale if the page is in no slab */
    uint16_t unmapped;    /* unmapped system pages at the end of this page (space.h) */
    uint16_t bitmap_words;
    uint16_t cursor;  /* the word of the bitmap from which blocks are taken */
    uint64_t *bitmap; /* the free bitmap. Bit i: block i is free, and on no list */
    void *region;     /* in a superslab's first page: the superslab, for page_heap.c */
    union {
        uint64_t since_ms; /* slabs: about when their first block was carved; cached spans: when freed */
        size_t run_first;  /* in the last page of a free run: distance to its first page (free_runs.c) */
    };
    union {
        size_t requested; /* large blocks: their usable bytes */
        size_t run_pages; /* free runs: their length (free_runs.c) */
        struct {
            uint32_t touched; /* slabs: the bytes from the base whose pages had blocks in an earlier use */
            uint16_t sparse;  /* slabs: how many blocks were free when their system pages were last purged */
            _Atomic(uint16_t) last_owner; /* slabs without an owner: which heap they had (hak_slab_owner_hint) */
        };
    };
    _Atomic(struct hak_slab *) below; /* the next one of a slab_stack */
};
_Static_assert(sizeof(struct hak_slab) == 128, "two cache lines");

#define HAK_SLAB_STATE_MASK 0x7u
HAK_INLINE enum hak_slab_state hak_slab_state(const struct hak_slab *slab)
{
    return (enum hak_slab_state)(HAK_LOAD_ACQUIRE(&slab->word) & HAK_SLAB_STATE_MASK);
}

#endif
