/* SPDX-License-Identifier: MIT
 * Superslabs: aligned regions of 8 to 64 pages of 64 KiB, whose free pages are two bitmaps (free, and dirty
 * among them). Those with free pages are indexed by the length of their longest free run, so that finding a
 * run is a lookup and never a search through regions. All functions run under the pool's lock. */
#ifndef SHARED_POOL_SUPERSLAB_H
#define SHARED_POOL_SUPERSLAB_H

#include "core/plugin.h"

struct superslab {
    char *base;
    uint64_t free;  /* bit i: page i belongs to nobody */
    uint64_t dirty; /* of those: pages with old content */
    uint64_t used;  /* pages that were ever handed out */
    unsigned longest;
    unsigned count; /* superslabs in this region: more than 1 only for a large run or a cached one */
    struct superslab *next, *prev;             /* index, or LRU cache */
    struct superslab *dirty_next, *dirty_prev; /* regions with dirty pages, the longest idle first */
    uint64_t idle;             /* of the dirty pages: those that were dirty at the last look */
    uint64_t leaving;          /* of those: pages that stand in a batch */
    uint64_t dirty_since_ms;   /* when it became dirty, or was last looked at */
    uint64_t put_ms;           /* when a page last became dirty */
    uint64_t cached_since_ms;
    uint64_t returned; /* free pages that were given back: at returned_ms, for returned_for */
    uint64_t returned_ms;
    enum hak_cause returned_for;
    bool on_dirty_list;
    bool whole; /* handed out as one run, outside of the index */
};

#define SUPERSLAB_BATCH 224 /* ranges at which it is sent */
#define ALL_PAGES (HAK_SUPERSLAB_PAGES == 64 ? ~(uint64_t)0 : ((uint64_t)1 << HAK_SUPERSLAB_PAGES % 64) - 1)

HAK_INLINE uint64_t superslab_run(unsigned first, unsigned pages)
{
    return (pages == 64 ? ~(uint64_t)0 : ((uint64_t)1 << pages) - 1) << first;
}

/* A region of `count` superslabs from the address space, all its pages free and clean; NULL without. */
struct superslab *hak_superslab_map(size_t count, size_t align, bool header);
/* Gives a region, whose pages are clean, back to the address space. */
void hak_superslab_unmap(struct superslab *s);

/* The region with the shortest run of at least `pages` free pages; NULL if none has one. */
struct superslab *hak_superslab_find(unsigned pages, bool header);
/* The index of the first run of `pages` free pages of a region that has one. */
unsigned hak_superslab_fit(const struct superslab *s, unsigned pages);
/* Whether these pages are sure to read as zero. */
bool hak_superslab_is_zero(const struct superslab *s, uint64_t pages);
/* Takes these pages; false if one of them is not free, or without memory. */
bool hak_superslab_take_at(struct superslab *s, unsigned first, unsigned pages);
void hak_superslab_put(struct superslab *s, unsigned first, unsigned pages, bool dirty);
/* Takes a wholly free region out of the index, and puts one in. */
void hak_superslab_withdraw(struct superslab *s);
void hak_superslab_offer(struct superslab *s);
/* The region whose pages have been dirty the longest, NULL if none. */
struct superslab *hak_superslab_oldest_dirty(void);
/* Hands a region that is not in the index out as a whole, and takes it back. */
void hak_superslab_take_whole(struct superslab *s);
void hak_superslab_put_whole(struct superslab *s, bool dirty);
/* The dirty pages that nobody has asked for in `delay_ms`; the others count as looked at, and come last. */
uint64_t hak_superslab_idle(struct superslab *s, uint64_t now_ms, uint64_t delay_ms);
/* Gives the dirty pages of a region back; returns bytes. */
size_t hak_superslab_clean(struct superslab *s, enum hak_cause cause);

/* Pages of many regions that go back together. A region stands in one batch at most, and only until the
 * caller, who holds the lock all the time, sends it. */
struct superslab_batch {
    enum hak_cause cause;
    unsigned regions, ranges;
    struct superslab *region[SUPERSLAB_BATCH];
    struct iovec range[SUPERSLAB_BATCH + 32];
};
/* Adds dirty pages of a region; returns their bytes. A full batch is sent. */
size_t hak_superslab_batch_add(struct superslab_batch *b, struct superslab *s, uint64_t pages);
/* Returns the bytes that went back. */
size_t hak_superslab_batch_send(struct superslab_batch *b);
size_t hak_superslab_dirty_bytes(void);
size_t hak_superslab_dirty_regions(void);

#endif
