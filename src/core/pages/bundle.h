/* SPDX-License-Identifier: MIT
 * Bundles: how blocks that others freed come home where bins are arrays. A bundle is a free block that names others of
 * its slab, behind its link. So who sends them writes, and who gets them reads, one block of many; of a plain list the
 * reader misses the cache for each block, and waits for it to find the next one. The remote list and the free list of
 * a slab are lists of bundles. Its owner moves them to the map before he takes blocks, which finds one that came home
 * twice.
 * Where bins are lists, slabs have lists of blocks; in hardened builds, too, as a free block's second word is a mark.
 */
#ifndef HAK_BUNDLE_H
#define HAK_BUNDLE_H

#include "slab.h"

#define HAK_BUNDLES_FEW 8u /* blocks */

struct hak_bundle {
    void *next;         /* for hak_next_load */
    uint16_t count;     /* of the others; the upper bits check their numbers */
    uint16_t numbers[]; /* which blocks of the slab they are */
};

#define HAK_BUNDLE_COUNT_BITS 9
#define HAK_BUNDLE_MOST ((1u << HAK_BUNDLE_COUNT_BITS) - 1)

/* The word `count`. `sum`: the numbers, all in one XOR. What a program writes to one of them after free does not fit. */
HAK_INLINE uint16_t hak_bundle_word(uint32_t named, uint32_t sum)
{
    return (uint16_t)(named | (sum ^ sum >> (16 - HAK_BUNDLE_COUNT_BITS)) << HAK_BUNDLE_COUNT_BITS);
}

/* A chain of bundles, or of blocks, in the making: call hak_bundler_end. */
struct hak_bundler {
    void *head, *tail;
    uint32_t count;
    uint32_t most, named; /* blocks that the tail can name, and does */
    uint32_t sum;         /* of those */
};

HAK_INLINE uint32_t hak_bundle_most(const struct hak_slab *slab)
{
    uint32_t usable = slab->stride - hak_class_has_header(slab->cls);
    uint32_t fit = (usable - (uint32_t)offsetof(struct hak_bundle, numbers)) / (uint32_t)sizeof(uint16_t);
    return HAK_BUNDLES ? (uint32_t)hak_min(fit, HAK_BUNDLE_MOST) : 0;
}

HAK_INLINE struct hak_bundler hak_bundler_start(const struct hak_slab *slab, void *block)
{
    return (struct hak_bundler){.head = block, .tail = block, .count = 1, .most = hak_bundle_most(slab)};
}

HAK_INLINE void hak_bundle_close(void *block, uint32_t named, uint32_t sum)
{
    struct hak_bundle *bundle = block;
    if (HAK_BUNDLES)
        bundle->count = hak_bundle_word(named, sum);
}

/* `linked`: where there are no bundles, the chain's last block leads to this one already. */
HAK_INLINE void hak_bundler_add(struct hak_bundler *b, void *block, uint32_t number, const bool linked)
{
    struct hak_bundle *last = b->tail;
    b->count++;
    if (HAK_BUNDLES && b->named < b->most) {
        last->numbers[b->named++] = (uint16_t)number;
        b->sum ^= number;
        return;
    }
    hak_bundle_close(last, b->named, b->sum);
    if (HAK_BUNDLES || !linked)
        hak_next_store(last, block);
    b->tail = block;
    b->named = b->sum = 0;
}

HAK_INLINE struct hak_chain hak_bundler_end(const struct hak_bundler *b)
{
    hak_bundle_close(b->tail, b->named, b->sum);
    hak_next_store(b->tail, NULL);
    return (struct hak_chain){b->head, b->tail, b->count};
}

/* Takes blocks where hak_bundles_open fails: first those that a bundle names, then itself. How many. By the owner. */
uint32_t hak_bundles_take_closed(struct hak_slab *slab, uint32_t want, void **slots);
/* All blocks of the slab that are free, where they are few and came from others: its map, which is cold, is not touched,
 * and each block is compared with each. By the owner. */
uint32_t hak_bundles_take_few(struct hak_slab *slab, void **slots);
HAK_INLINE bool hak_bundles_are_few(const struct hak_slab *slab, uint32_t want)
{
    return HAK_BUNDLES && slab->free && !slab->marked && slab->free_count <= hak_min(want, HAK_BUNDLES_FEW);
}

/* See hak_bundles_open. */
bool hak_bundles_move(struct hak_slab *slab);

/* Moves the free list to the map, in builds that have a map for all blocks. False without memory for one. By the owner.
 * Hardened builds have no bundles, but look at each block before its link is followed. */
HAK_INLINE bool hak_bundles_open(struct hak_slab *slab)
{
    return !HAK_MAP_ALL || !slab->free || hak_bundles_move(slab);
}

/* Before a slab goes, since as many blocks came as had left: stops the process if one came twice, and another is still
 * in use. */
HAK_INLINE void hak_bundles_check(struct hak_slab *slab)
{
    hak_bundles_open(slab);
}

#endif
