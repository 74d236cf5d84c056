/* SPDX-License-Identifier: MIT
 * Block batches: how blocks that others freed come home where bins are arrays. A block batch is a free block that names
 * others of its slab, behind its link. So who sends them writes, and who gets them reads, one block of many; of a plain
 * list the reader misses the cache for each block, and waits for it to find the next one. The remote list and the free
 * list of a slab are lists of block batches. Its owner moves them to the map before he takes blocks, which finds one
 * that came home twice. Where bins are lists, slabs have lists of blocks; in hardened builds, too, as a free block's
 * second word is a mark.
 */
#ifndef HAK_BLOCK_BATCH_H
#define HAK_BLOCK_BATCH_H

#include "slab.h"

#define HAK_BLOCK_BATCH_FEW 8u /* blocks */

struct hak_block_batch {
    void *next;         /* for hak_next_load */
    uint16_t count;     /* of the others; the upper bits check their numbers */
    uint16_t numbers[]; /* which blocks of the slab they are */
};

#define HAK_BLOCK_BATCH_COUNT_BITS 9
#define HAK_BLOCK_BATCH_MOST ((1u << HAK_BLOCK_BATCH_COUNT_BITS) - 1)

/* The word `count`. `sum`: the numbers, all in one XOR. What a program writes to one of them after free does not fit.
 */
HAK_INLINE uint16_t hak_block_batch_word(uint32_t named, uint32_t sum)
{
    return (uint16_t)(named | (sum ^ sum >> (16 - HAK_BLOCK_BATCH_COUNT_BITS)) << HAK_BLOCK_BATCH_COUNT_BITS);
}

/* A chain of block batches, or of blocks, in the making: call hak_batcher_end. */
struct hak_batcher {
    void *head, *tail;
    uint32_t count;
    uint32_t most, named; /* blocks that the tail can name, and does */
    uint32_t sum;         /* of those */
};

HAK_INLINE uint32_t hak_block_batch_most(const struct hak_slab *slab)
{
    uint32_t usable = slab->stride - hak_class_has_header(slab->cls);
    uint32_t fit = (usable - (uint32_t)offsetof(struct hak_block_batch, numbers)) / (uint32_t)sizeof(uint16_t);
    return HAK_BLOCK_BATCHES ? (uint32_t)hak_min(fit, HAK_BLOCK_BATCH_MOST) : 0;
}

HAK_INLINE struct hak_batcher hak_batcher_start(const struct hak_slab *slab, void *block)
{
    return (struct hak_batcher){.head = block, .tail = block, .count = 1, .most = hak_block_batch_most(slab)};
}

HAK_INLINE void hak_block_batch_close(void *block, uint32_t named, uint32_t sum)
{
    struct hak_block_batch *bundle = block;
    if (HAK_BLOCK_BATCHES)
        bundle->count = hak_block_batch_word(named, sum);
}

/* `linked`: where there are no block batches, the chain's last block leads to this one already. */
HAK_INLINE void hak_batcher_add(struct hak_batcher *b, void *block, uint32_t number, const bool linked)
{
    struct hak_block_batch *last = b->tail;
    b->count++;
    if (HAK_BLOCK_BATCHES && b->named < b->most) {
        last->numbers[b->named++] = (uint16_t)number;
        b->sum ^= number;
        return;
    }
    hak_block_batch_close(last, b->named, b->sum);
    if (HAK_BLOCK_BATCHES || !linked)
        hak_next_store(last, block);
    b->tail = block;
    b->named = b->sum = 0;
}

HAK_INLINE struct hak_chain hak_batcher_end(const struct hak_batcher *b)
{
    hak_block_batch_close(b->tail, b->named, b->sum);
    hak_next_store(b->tail, NULL);
    return (struct hak_chain){b->head, b->tail, b->count};
}

/* Takes blocks where hak_block_batches_open fails: first those that a block batch names, then itself. How many. By the
 * owner. */
uint32_t hak_block_batches_take_closed(struct hak_slab *slab, uint32_t want, void **slots);
/* All blocks of the slab that are free, where they are few and came from others: its map, which is cold, is not
 * touched, and each block is compared with each. By the owner. */
uint32_t hak_block_batches_take_few(struct hak_slab *slab, void **slots);
HAK_INLINE bool hak_block_batches_are_few(const struct hak_slab *slab, uint32_t want)
{
    return HAK_BLOCK_BATCHES && slab->free && !slab->marked && slab->free_count <= hak_min(want, HAK_BLOCK_BATCH_FEW);
}

/* See hak_block_batches_open. */
bool hak_block_batches_move(struct hak_slab *slab);

/* Moves the free list to the map, in builds that have a map for all blocks. False without memory for one. By the owner.
 * Hardened builds have no block batches, but look at each block before its link is followed. */
HAK_INLINE bool hak_block_batches_open(struct hak_slab *slab)
{
    return !HAK_MAP_ALL || !slab->free || hak_block_batches_move(slab);
}

/* Before a slab goes, since as many blocks came as had left: stops the process if one came twice, and another is still
 * in use. */
HAK_INLINE void hak_block_batches_check(struct hak_slab *slab)
{
    hak_block_batches_open(slab);
}

#endif
