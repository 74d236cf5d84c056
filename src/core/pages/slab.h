/* SPDX-License-Identifier: MIT
 * The slab: a run of 64 KiB pages cut into blocks of one class, or one large span. This file owns the
 * states of a descriptor (descriptor.h) and the word through which other threads free blocks.
 *
 *   UNUSED --format--> ACTIVE --no block left--> FULL --first remote free---> PARTIAL --adopt--> ACTIVE
 *                        |  \--owner frees one of its blocks: FULL -> ACTIVE          \--last free--> EMPTY
 *                        \--last block freed--> EMPTY --reuse--> ACTIVE, or --pages become free--> UNUSED
 *
 * ACTIVE slabs have one owner, the only thread to touch `free`, `free_count`, `bitmap`, `marked`, `carved` and `used`.
 * Small free blocks are marked in the free bitmap and handed out in address order, as new blocks are: what a program
 * allocates together lies together, in whatever order it freed before. Larger free blocks are on a list. FULL slabs
 * have no owner and stand on no list. PARTIAL slabs have no owner and stand on a list of the backend. A thread that
 * frees blocks of either visits it: for a moment it alone touches those fields, while the slab stays in its state and
 * on its list. A block in some thread's bin counts as allocated: a slab with such a block is never EMPTY. */
#ifndef HAK_SLAB_H
#define HAK_SLAB_H

#include "core/base/sizeclass.h"
#include "core/base/work.h"
#include "core/pages/link.h"
#include "descriptor.h"

/* A chain of free blocks of one slab. */
struct hak_chain {
    void *head, *tail;
    uint32_t count;
};

/* Almost surely another number for another heap. */
HAK_INLINE uint16_t hak_slab_owner_hint(const struct hak_heap *heap)
{
    return (uint16_t)((uintptr_t)heap >> 6);
}

/* The time of the last tick, in quarters of a second, which recur. */
#define HAK_SLAB_TIME_LG 8u /* of ms */
#define HAK_SLAB_TIMES 128u
HAK_INLINE uint32_t hak_slab_time(void)
{
    return (uint32_t)(HAK_LOAD_RELAXED(&hak_awake_ms) >> HAK_SLAB_TIME_LG) % HAK_SLAB_TIMES;
}

/* Fills in the fields of a slab of the class, without a block. */
void hak_slab_lay_out(struct hak_slab *slab, unsigned cls);
/* Turns a run of pages that no other thread knows into an ACTIVE slab of the class, owned by `owner`. */
void hak_slab_format(struct hak_slab *slab, unsigned cls, struct hak_heap *owner);
/* Sets the page tags of a slab to `owner_tag`, so that its owner's frees take the fast path. */
void hak_slab_tag(const struct hak_slab *slab, uint64_t owner_tag);
/* Clears them, so that a free of one of its blocks is checked. No block is allocated. */
void hak_slab_untag(const struct hak_slab *slab);

/* --- by the owner ----------------------------------------------------------------------------- */

/* Takes up to `want` blocks: from the free list, else from the bitmap, else carved up to the end of the current system
 * page, or up to where blocks were before. */
struct hak_chain hak_slab_take(struct hak_slab *slab, uint32_t want);
/* For bins that are arrays: the same, into slots of an array. The block to be handed out first comes last. Of the
 * blocks, it reads and writes only those on the free list. */
uint32_t hak_slab_take_to_slots(struct hak_slab *slab, uint32_t want, void **slots);
/* The whole free list, without a walk: the chain's tail is NULL. */
struct hak_chain hak_slab_take_list(struct hak_slab *slab);
/* Puts blocks of the slab on its free list; the last one's link is NULL. */
void hak_slab_put(struct hak_slab *slab, struct hak_chain chain);
/* Moves the remote list to the free list; returns how many blocks were there. The owner or a visitor calls it. */
uint32_t hak_slab_collect(struct hak_slab *slab);
/* ACTIVE without a free block -> FULL. False if a remote free came first: collect. */
bool hak_slab_retire(struct hak_slab *slab);
/* ACTIVE -> FULL or PARTIAL when the owner ends. Returns the new state; the caller gives a PARTIAL slab to the backend,
 * even if none of its blocks is allocated. */
enum hak_slab_state hak_slab_disown(struct hak_slab *slab);
/* No block is allocated any more: ACTIVE -> EMPTY. Clears the tags, so that the pages may serve anything. */
void hak_slab_empty(struct hak_slab *slab);

/* Counts blocks of the slab that become allocated, or return to it (modulo 2^64). */
HAK_INLINE void hak_slab_count(const struct hak_slab *slab, uint64_t blocks)
{
    hak_count_allocated(blocks * hak_class_usable(slab->cls));
}

/* Blocks that were carved and are free. */
HAK_INLINE uint32_t hak_slab_free_blocks(const struct hak_slab *slab)
{
    return slab->free_count + slab->marked;
}

/* The next blocks are carved up to here: no system page is touched before one of its blocks is needed, unless blocks
 * were there before. */
HAK_INLINE size_t hak_slab_next_end(const struct hak_slab *slab)
{
    return hak_max(hak_align_up(((size_t)slab->carved + 1) * slab->stride, HAK_SYSTEM_PAGE), slab->touched);
}

/* Including blocks not yet carved. */
HAK_INLINE bool hak_slab_has_free(const struct hak_slab *slab)
{
    return hak_slab_free_blocks(slab) != 0 || slab->carved < slab->capacity;
}

/* How many blocks wait on its remote list. */
#define HAK_SLAB_COUNT_SHIFT 4
#define HAK_SLAB_COUNT_MASK 0x3fffu
HAK_INLINE uint32_t hak_slab_remote_count(const struct hak_slab *slab)
{
    return (uint32_t)(HAK_LOAD_RELAXED(&slab->word) >> HAK_SLAB_COUNT_SHIFT) & HAK_SLAB_COUNT_MASK;
}

/* Larger blocks gain nothing from address order. */
#define HAK_BITMAP_STRIDE (HAK_BITMAP_ALL ? HAK_SMALL_MAX : 1024u)
/* Gives a slab of small blocks its free bitmap; false if there is no memory for one. */
HAK_COLD bool hak_slab_make_bitmap(struct hak_slab *slab);
HAK_INLINE bool hak_slab_has_bitmap(struct hak_slab *slab)
{
    return HAK_LIKELY(slab->bitmap_divisor) || (slab->stride <= HAK_BITMAP_STRIDE && hak_slab_make_bitmap(slab));
}

/* `block` was freed, but was never handed out, or was free already. */
HAK_COLD _Noreturn void hak_slab_fail_free(const struct hak_slab *slab, const void *block);
HAK_COLD _Noreturn void hak_slab_fail_put(const struct hak_slab *slab, const void *block);

/* The offset of a block in its slab. Slabs of small blocks are one page. */
HAK_INLINE uint64_t hak_slab_offset_of(const struct hak_slab *slab, const void *block)
{
    return HAK_BITMAP_ALL ? (uintptr_t)block - (uintptr_t)slab->base : (uintptr_t)block & (HAK_PAGE - 1);
}

/* The upper half is the number of the block's bit in the bitmap. The lower half is less than the divisor only at the
 * start of a block, if the slab is one page (hak_class_starts_at). */
HAK_INLINE uint64_t hak_slab_place_of(const struct hak_slab *slab, const void *block)
{
    return hak_slab_offset_of(slab, block) * slab->bitmap_divisor;
}

/* Whether a block begins there. In slabs longer than a page the block's number decides. */
HAK_INLINE bool hak_slab_is_start(const struct hak_slab *slab, const void *block, uint64_t place)
{
    return HAK_BITMAP_ALL ? (place >> 32) * slab->stride == hak_slab_offset_of(slab, block)
                          : (uint32_t)place < slab->bitmap_divisor;
}

/* Marks a block as free in the slab's bitmap. The caller adds it to `marked`. */
HAK_INLINE void hak_slab_mark(struct hak_slab *slab, const void *block)
{
    uint64_t place = hak_slab_place_of(slab, block), bit = (uint64_t)1 << (place >> 32) % 64;
    uint32_t i = (uint32_t)(place >> 32);
    uint64_t *word = &slab->bitmap[i / 64];
    if (HAK_UNLIKELY(i >= slab->carved || !hak_slab_is_start(slab, block, place) || *word & bit))
        hak_slab_fail_free(slab, block);
    *word |= bit;
}

/* The same by the number of the block. */
HAK_INLINE void hak_slab_mark_number(struct hak_slab *slab, uint32_t i)
{
    uint64_t bit = (uint64_t)1 << i % 64, *word = &slab->bitmap[i / 64];
    if (HAK_UNLIKELY(i >= slab->carved || *word & bit))
        hak_slab_fail_free(slab, slab->base + (size_t)i * slab->stride);
    *word |= bit;
}

/* The block after this one, which is on a list of the slab. Stops the process if the link leads out of the slab. */
void *hak_slab_next(const struct hak_slab *slab, const void *block);

/* Called by the owner for a block that is freed. Stops the process if it is free in the bitmap. */
HAK_INLINE void hak_slab_check_used(const struct hak_slab *slab, const void *block)
{
    uint64_t place = hak_slab_place_of(slab, block);
    uint32_t i = (uint32_t)(place >> 32);
    if (slab->bitmap_divisor && i < slab->carved && hak_slab_is_start(slab, block, place) &&
        HAK_UNLIKELY(slab->bitmap[i / 64] >> i % 64 & 1))
        hak_slab_fail_free(slab, block);
}

/* Puts a block on the free list of a slab without a bitmap. The caller adds it to `free_count`. */
HAK_INLINE void hak_slab_push(struct hak_slab *slab, void *block)
{
    uint32_t offset = (uint32_t)((char *)block - slab->base);
    if (HAK_UNLIKELY(offset % slab->stride || offset / slab->stride >= slab->carved))
        hak_slab_fail_free(slab, block);
    hak_next_store(block, slab->free);
    slab->free = block;
}

/* --- by any thread ---------------------------------------------------------------------------- */

/* FULL -> ACTIVE for `owner`; false if someone else changed the state first. */
bool hak_slab_reclaim(struct hak_slab *slab, struct hak_heap *owner);
/* PARTIAL (just taken off its list) -> ACTIVE for `owner`, its remote list collected. False, and FULL: a thread visits
 * the slab, and will publish it. */
bool hak_slab_adopt(struct hak_slab *slab, struct hak_heap *owner);
/* Begins a visit to a FULL or PARTIAL slab, in which the thread puts blocks of it into it as its owner would. False:
 * another thread visits or owns it. */
bool hak_slab_visit(struct hak_slab *slab);
/* The result of a visit, and of a remote free. */
enum hak_remote {
    HAK_REMOTE_DONE,
    HAK_REMOTE_PUBLISH, /* this call made a FULL slab PARTIAL: the caller gives it to the backend */
    HAK_REMOTE_EMPTY,   /* PARTIAL and every block is back: the caller tells the backend */
};

/* Ends the visit. */
enum hak_remote hak_slab_leave(struct hak_slab *slab);
/* Links the chain into the slab's remote list. */
enum hak_remote hak_slab_remote_put(struct hak_slab *slab, struct hak_chain chain);
/* PARTIAL slabs: whether all their blocks are back. */
bool hak_slab_all_back(const struct hak_slab *slab);
/* The same, for a thread that has just published the slab without a lock: either this call sees the last free, or the
 * thread that frees last sees the published slab. */
bool hak_slab_all_back_by_now(struct hak_slab *slab);

/* The number of a block. Stops the process if no block of the slab begins there. */
uint32_t hak_slab_check_start(const struct hak_slab *slab, const void *block, const char *call);
/* Stops the process if `block` is not the start of a carved block. It passes every block that malloc returned. */
void hak_slab_check_block(const struct hak_slab *slab, const void *block, const char *call);
/* Stops the process if the header byte before a block of the slab, which has one in header builds, is wrong: the
 * program wrote beyond the end of the block before it. */
void hak_slab_check_header(const struct hak_slab *slab, const void *p);

const char *hak_slab_state_name(enum hak_slab_state state);

#endif
