/* SPDX-License-Identifier: MIT
 * Superslabs: aligned ranges of 8 to 64 pages of 64 KiB, whose free pages are a bitmap, with the account of the dirty
 * ones (pages/dirty.h). Those with free pages are indexed by the length of their longest free run, so that finding a
 * run is a lookup and never a search through superslabs. All functions run under the pool's lock. */
#ifndef SHARED_POOL_SUPERSLAB_H
#define SHARED_POOL_SUPERSLAB_H

#include "core/pages/dirty.h"
#include "core/plugin.h"

/* One of several lengths, for a large run, has as many pages as any, each longer. */
struct superslab {
    struct hak_dirty pages; /* first: an account leads to its superslab */
    uint64_t bits[HAK_DIRTY_WORDS(64)];
    uint64_t free; /* bit i: page i belongs to nobody */
    unsigned longest;
    unsigned count;                /* lengths of a superslab: more than 1 only for a large run or a cached one */
    struct superslab *next, *prev; /* index, or LRU cache */
    uint64_t cached_since_ms;
    bool cached; /* in the LRU cache */
    bool whole;  /* handed out as one run, outside of the index */
};

#define ALL_PAGES (HAK_SUPERSLAB_PAGES == 64 ? ~(uint64_t)0 : ((uint64_t)1 << HAK_SUPERSLAB_PAGES % 64) - 1)

HAK_INLINE uint64_t superslab_run(unsigned first, unsigned pages)
{
    return (pages == 64 ? ~(uint64_t)0 : ((uint64_t)1 << pages) - 1) << first;
}

extern struct hak_lock hak_pool_lock;
/* Of all superslabs. */
extern struct hak_dirty_queue hak_pool_dirty;

/* A superslab of `count` lengths from the address space, all its pages free and clean; NULL without. Without the lock.
 */
struct superslab *hak_superslab_map(size_t count, size_t align, bool header);
/* Gives a superslab, whose pages are clean, back to the address space. */
void hak_superslab_unmap(struct superslab *s);

/* The superslab with the shortest run of at least `pages` free pages; NULL if none has one. */
struct superslab *hak_superslab_find(unsigned pages, bool header);
/* The index of the first run of `pages` free pages of a superslab that has one. */
unsigned hak_superslab_fit(const struct superslab *s, unsigned pages);
/* Takes these pages; false if one of them is not free, or without memory. *zero: they read as zero. `lent` as in
 * hak_dirty_take. */
bool hak_superslab_take_at(struct superslab *s, unsigned first, unsigned pages, bool lent, bool *zero);
void hak_superslab_put(struct superslab *s, unsigned first, unsigned pages, bool dirty);
/* Takes a wholly free superslab out of the index, and puts one in. */
void hak_superslab_withdraw(struct superslab *s);
void hak_superslab_offer(struct superslab *s);
/* Free pages are nobody's for a while, and free again. */
void hak_superslab_hide(struct superslab *s, uint64_t pages);
void hak_superslab_show(struct superslab *s, uint64_t pages);
/* Lends a superslab that is not in the index as a whole, and takes it back. True: it reads as zero. */
bool hak_superslab_take_whole(struct superslab *s);
void hak_superslab_put_whole(struct superslab *s, bool dirty);

#endif
