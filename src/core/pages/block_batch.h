/* SPDX-License-Identifier: MIT
 * Block batches: how remotely freed blocks return to their slab if bins are arrays. A block batch is a free block that
 * holds, behind its link, the numbers of other free blocks of its slab. Sender and receiver each touch one block of
 * many. With a plain list, the receiver would miss the cache at every block, and could not find the next block before
 * that. The remote list and the free list of a slab are lists of block batches. The owner moves them to the free bitmap
 * before it takes blocks, which detects a block that was freed twice. If bins are lists, slabs have plain lists of
 * blocks. So have hardened builds, whose free blocks have a mark as their second word.
 */
#ifndef HAK_BLOCK_BATCH_H
#define HAK_BLOCK_BATCH_H

#include "slab.h"

#define HAK_BLOCK_BATCH_FEW 8u /* blocks */

struct hak_block_batch {
    void *next;         /* for hak_next_load */
    uint16_t count;     /* how many numbers follow; the upper bits are a checksum of them */
    uint16_t numbers[]; /* the numbers of other blocks in the slab */
};

#define HAK_BLOCK_BATCH_COUNT_BITS 9
#define HAK_BLOCK_BATCH_MOST ((1u << HAK_BLOCK_BATCH_COUNT_BITS) - 1)

/* The word `count`. `sum`: the XOR of all numbers. If a program writes to the batch after free, the checksum fails.
 */
HAK_INLINE uint16_t hak_block_batch_word(uint32_t named, uint32_t sum)
{
    return (uint16_t)(named | (sum ^ sum >> (16 - HAK_BLOCK_BATCH_COUNT_BITS)) << HAK_BLOCK_BATCH_COUNT_BITS);
}

/* Builds a chain of block batches, or of blocks. hak_batcher_end completes it. */
struct hak_batcher {
    void *head, *tail;
    uint32_t count;
    uint32_t most, named; /* numbers that the tail can hold, and holds */
    uint32_t sum;         /* XOR of those */
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
    struct hak_block_batch *batch = block;
    if (HAK_BLOCK_BATCHES)
        batch->count = hak_block_batch_word(named, sum);
}

/* `linked`: without block batches, the tail is linked already. */
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

/* Takes blocks if hak_block_batches_open has failed: first the blocks that a batch names, then the batch itself.
 * Returns how many. Called by the owner. */
uint32_t hak_block_batches_take_closed(struct hak_slab *slab, uint32_t want, void **slots);
/* Takes all free blocks of the slab, if they are few and other threads freed them. It does not touch the bitmap, which
 * is not in the CPU's cache; it compares each block with each instead. Called by the owner. */
uint32_t hak_block_batches_take_few(struct hak_slab *slab, void **slots);
HAK_INLINE bool hak_block_batches_are_few(const struct hak_slab *slab, uint32_t want)
{
    return HAK_BLOCK_BATCHES && slab->free && !slab->marked && slab->free_count <= hak_min(want, HAK_BLOCK_BATCH_FEW);
}

/* See hak_block_batches_open. */
bool hak_block_batches_move(struct hak_slab *slab);

/* Moves the free list to the bitmap, in builds in which slabs of every class have one. False if there is no memory for
 * it. Called by the owner. Hardened builds have no block batches, but check each block before they follow its link. */
HAK_INLINE bool hak_block_batches_open(struct hak_slab *slab)
{
    return !HAK_BITMAP_ALL || !slab->free || hak_block_batches_move(slab);
}

#endif
