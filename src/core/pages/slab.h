/* SPDX-License-Identifier: MIT
 * The slab: a run of 64 KiB pages cut into blocks of one class, or one large span. This file owns the
 * descriptor, its life and the word through which other threads give blocks back.
 *
 *   UNUSED --format--> ACTIVE --no block left--> FULL --first remote free---> PARTIAL --adopt--> ACTIVE
 *                        |  \--owner frees one of its blocks: FULL -> ACTIVE          \--last free--> EMPTY
 *                        \--last block freed--> EMPTY --reuse--> ACTIVE, or --pages become free--> UNUSED
 *
 * ACTIVE slabs have one owner, who alone touches `free`, `free_count`, `map`, `marked`, `carved` and `used`.
 * Free blocks that are small are marked in a map, one bit each, and go out in the order of their addresses, as new
 * ones do: what a program allocates together lies together, however it freed before. Others are on a list.
 * FULL slabs have no owner and stand on no list. PARTIAL slabs have no owner and stand on a list of the
 * backend. A block in some thread's bin counts as used: a slab with such a block is never EMPTY. */
#ifndef HAK_SLAB_H
#define HAK_SLAB_H

#include "core/base/counters.h"
#include "core/base/sizeclass.h"
#include "link.h"

#define HAK_CLASS_SPAN 0xffu /* `cls` of a span, which holds one large block */

enum hak_slab_state {
    HAK_SLAB_UNUSED, /* zero: never used, or part of a longer run */
    HAK_SLAB_ACTIVE,
    HAK_SLAB_FULL,
    HAK_SLAB_PARTIAL,
    HAK_SLAB_EMPTY, /* free, its pages dirty */
    HAK_SLAB_SPAN,  /* one large block */
    HAK_SLAB_NSTATES
};
_Static_assert(HAK_SLAB_NSTATES == HAK_COUNTED_STATES, "each transition has a counter");

struct hak_heap;

struct hak_slab {
    /* for the owner, or under the lock of the list it stands on */
    _Alignas(2 * HAK_CACHELINE) struct hak_slab *next;
    struct hak_slab *prev;
    void *free; /* collected blocks, and those given back by the owner where there is no map */
    char *base;
    uint32_t free_count; /* on that list */
    uint32_t used;     /* blocks outstanding: live, in a bin, or in a remote cache or list */
    uint32_t carved;   /* blocks cut so far */
    uint32_t capacity; /* blocks in all */
    uint32_t stride;
    uint16_t pages;
    uint8_t cls;
    uint8_t listed;       /* stands on a list */
    uint32_t marked;      /* free blocks in the map */
    uint32_t map_divisor; /* 2^32 / stride, rounded up; 0 without a map */
    /* for everyone */
    _Alignas(HAK_CACHELINE) _Atomic(uint64_t) word; /* state, remote list: see slab.c */
    _Atomic(struct hak_heap *) owner;
    uint16_t head_offset; /* pages from the head of its slab to this page; of other pages, of a slab that was there */
    uint16_t unmapped;    /* of this page: system pages at its end (space.h) */
    uint16_t map_words;
    uint16_t cursor;      /* the word of the map from which blocks are taken */
    uint64_t *map;        /* bit i: block i is free, and on no list */
    void *region;         /* of a superslab's first page: page_heap.c's own */
    union {
        uint64_t since_ms; /* slabs: when their first block was cut, or shortly before; cached spans: when freed */
        size_t run_first;  /* the last page of a free run: pages from the first one (free_runs.c) */
    };
    union {
        size_t requested; /* large blocks: bytes that the block may use */
        size_t run_pages; /* free runs: their length (free_runs.c) */
        size_t touched;   /* others: bytes from the base in whose pages there were blocks before */
    };
    _Atomic(struct hak_slab *) below; /* the next one of a slab_stack */
};
_Static_assert(sizeof(struct hak_slab) == 128, "two cache lines");

/* A chain of free blocks of one slab. */
struct hak_chain {
    void *head, *tail;
    uint32_t count;
};

#define HAK_SLAB_STATE_MASK 0xfu
HAK_INLINE enum hak_slab_state hak_slab_state(const struct hak_slab *slab)
{
    return (enum hak_slab_state)(HAK_LOAD_ACQUIRE(&slab->word) & HAK_SLAB_STATE_MASK);
}

/* Makes a run of pages that nobody else knows an ACTIVE slab of the class, owned by `owner`. */
void hak_slab_format(struct hak_slab *slab, unsigned cls, struct hak_heap *owner);
/* Sets the page tags of a slab to `owner_tag`, so that its owner's frees take the fast path. */
void hak_slab_tag(const struct hak_slab *slab, uint64_t owner_tag);
/* Clears them, so that a free of one of its blocks is checked: none is outstanding. */
void hak_slab_untag(const struct hak_slab *slab);

/* --- by the owner ----------------------------------------------------------------------------- */

/* Takes up to `want` blocks: from the free list, else from the map, else carved up to the end of the current system
 * page, or as far as there were blocks before. */
struct hak_chain hak_slab_take(struct hak_slab *slab, uint32_t want);
/* With bins that are arrays: the same to slots of an array, where the block to be handed out first stands last. It
 * reads and writes no block, but those of the free list. */
uint32_t hak_slab_take_to_slots(struct hak_slab *slab, uint32_t want, void **slots);
/* The whole free list, without a walk: the chain's tail is NULL. */
struct hak_chain hak_slab_take_list(struct hak_slab *slab);
/* Puts blocks of the slab on its free list; the last one's link is NULL. */
void hak_slab_put(struct hak_slab *slab, struct hak_chain chain);
/* Moves the remote list to the free list; returns how many blocks came. */
uint32_t hak_slab_collect(struct hak_slab *slab);
/* ACTIVE without a free block -> FULL. False if a remote free came first: collect. */
bool hak_slab_retire(struct hak_slab *slab);
/* ACTIVE -> FULL or PARTIAL when the owner ends. Returns the new state; PARTIAL must be given to the backend, even
 * if no block is outstanding. */
enum hak_slab_state hak_slab_disown(struct hak_slab *slab);
/* No block is outstanding any more: ACTIVE -> EMPTY. Clears the tags, so that the pages may serve anything. */
void hak_slab_empty(struct hak_slab *slab);

/* Cut before, and with the slab now. */
HAK_INLINE uint32_t hak_slab_free_blocks(const struct hak_slab *slab)
{
    return slab->free_count + slab->marked;
}

/* The next blocks are cut up to here: no system page is touched before a block of it was asked for, unless there were
 * blocks before. */
HAK_INLINE size_t hak_slab_next_end(const struct hak_slab *slab)
{
    return hak_max(hak_align_up(((size_t)slab->carved + 1) * slab->stride, HAK_SYSTEM_PAGE), slab->touched);
}

/* Those, or not yet carved. */
HAK_INLINE bool hak_slab_has_free(const struct hak_slab *slab)
{
    return hak_slab_free_blocks(slab) != 0 || slab->carved < slab->capacity;
}

/* How many blocks wait on its remote list. */
#define HAK_SLAB_COUNT_SHIFT 4
#define HAK_SLAB_COUNT_MASK 0x3fffu
HAK_INLINE uint32_t hak_slab_remote_count(const struct hak_slab *slab)
{
    return (uint32_t)(HAK_LOAD_RELAXED(&slab->word) >> HAK_SLAB_COUNT_SHIFT) &
           HAK_SLAB_COUNT_MASK;
}

/* Larger blocks gain nothing from their order. */
#define HAK_MAP_STRIDE (HAK_MAP_ALL ? HAK_SMALL_MAX : 1024u)
/* Gives a slab of small blocks its map; false without memory for one. */
HAK_COLD bool hak_slab_make_map(struct hak_slab *slab);
HAK_INLINE bool hak_slab_has_map(struct hak_slab *slab)
{
    return HAK_LIKELY(slab->map_divisor) || (slab->stride <= HAK_MAP_STRIDE && hak_slab_make_map(slab));
}

/* `block` was freed, but is no block that was handed out, or was free already. */
HAK_COLD _Noreturn void hak_slab_fail_free(const struct hak_slab *slab, const void *block);
HAK_COLD _Noreturn void hak_slab_fail_put(const struct hak_slab *slab, const void *block);

/* Where in its slab a block is; slabs of small blocks are one page. */
HAK_INLINE uint64_t hak_slab_offset_of(const struct hak_slab *slab, const void *block)
{
    return HAK_MAP_ALL ? (uintptr_t)block - (uintptr_t)slab->base : (uintptr_t)block & (HAK_PAGE - 1);
}

/* The bit of a block in the map, and below it what is less than the divisor for the start of a block alone, if the slab
 * is one page (hak_class_starts_at). */
HAK_INLINE uint64_t hak_slab_place_of(const struct hak_slab *slab, const void *block)
{
    return hak_slab_offset_of(slab, block) * slab->map_divisor;
}

/* Whether a block begins at the place: in slabs of any length its number tells where. */
HAK_INLINE bool hak_slab_is_start(const struct hak_slab *slab, const void *block, uint64_t place)
{
    return HAK_MAP_ALL ? (place >> 32) * slab->stride == hak_slab_offset_of(slab, block)
                       : (uint32_t)place < slab->map_divisor;
}

HAK_INLINE uint32_t hak_slab_bit_of(const struct hak_slab *slab, const void *block)
{
    return (uint32_t)(hak_slab_place_of(slab, block) >> 32);
}

/* Marks a block of a slab with a map as free. To be counted in `marked`. */
HAK_INLINE void hak_slab_mark(struct hak_slab *slab, const void *block)
{
    uint64_t place = hak_slab_place_of(slab, block), bit = (uint64_t)1 << (place >> 32) % 64;
    uint32_t i = (uint32_t)(place >> 32);
    uint64_t *word = &slab->map[i / 64];
    if (HAK_UNLIKELY(i >= slab->carved || !hak_slab_is_start(slab, block, place) || *word & bit))
        hak_slab_fail_free(slab, block);
    *word |= bit;
}

/* The same by the number of the block. */
HAK_INLINE void hak_slab_mark_number(struct hak_slab *slab, uint32_t i)
{
    uint64_t bit = (uint64_t)1 << i % 64, *word = &slab->map[i / 64];
    if (HAK_UNLIKELY(i >= slab->carved || *word & bit))
        hak_slab_fail_free(slab, slab->base + (size_t)i * slab->stride);
    *word |= bit;
}

/* Puts a block on the free list of a slab without a map. To be counted in `free_count`. */
HAK_INLINE void hak_slab_push(struct hak_slab *slab, void *block)
{
    uint32_t offset = (uint32_t)((char *)block - slab->base);
    if (HAK_UNLIKELY(offset % slab->stride || offset / slab->stride >= slab->carved))
        hak_slab_fail_free(slab, block);
    hak_next_store(block, slab->free);
    slab->free = block;
}

/* --- by anyone -------------------------------------------------------------------------------- */

/* FULL -> ACTIVE for `owner`; false if someone else changed the state first. */
bool hak_slab_reclaim(struct hak_slab *slab, struct hak_heap *owner);
/* PARTIAL (just taken off its list) -> ACTIVE for `owner`, its remote list collected. True: no block is outstanding. */
bool hak_slab_adopt(struct hak_slab *slab, struct hak_heap *owner);
/* What a remote free found out. */
enum hak_remote {
    HAK_REMOTE_DONE,
    HAK_REMOTE_PUBLISH, /* FULL became PARTIAL by this call: the caller hands it to the backend */
    HAK_REMOTE_EMPTY,   /* PARTIAL and every block is back: the caller tells the backend */
};
enum hak_remote hak_slab_remote_put(struct hak_slab *slab, struct hak_chain chain);
/* PARTIAL slabs: whether all their blocks are back. */
bool hak_slab_all_back(const struct hak_slab *slab);
/* The same for who has just put the slab where others find it, without a lock: it sees the last free, or who frees last
 * sees the slab there. */
bool hak_slab_all_back_by_now(struct hak_slab *slab);

/* The number of a block. Stops the process if none of the slab's begins there. */
uint32_t hak_slab_check_start(const struct hak_slab *slab, const void *block, const char *call);
/* Stops the process if `block` is not the start of a block that was carved, as each was that the caller was given. */
void hak_slab_check_block(const struct hak_slab *slab, const void *block, const char *call);

const char *hak_slab_state_name(enum hak_slab_state state);

#endif
