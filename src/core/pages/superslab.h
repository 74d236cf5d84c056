/* SPDX-License-Identifier: MIT
 * A superslab as the page heap sees it (page_heap.c, free_runs.c): the state of its pages, and its place in the cache.
 * The descriptor of its first page leads to it. hak_pages_lock protects it. */
#ifndef HAK_SUPERSLAB_H
#define HAK_SUPERSLAB_H

#include "dirty.h"
#include "space.h"

#define HAK_ALL_PAGES (HAK_SUPERSLAB_PAGES == 64 ? ~(uint64_t)0 : ((uint64_t)1 << HAK_SUPERSLAB_PAGES % 64) - 1)

/* What the kernel is told of memory, by bits. */
enum { HAK_ADVICE_NONE, HAK_ADVICE_NO_DUMP = 1, HAK_ADVICE_HUGE = 2, HAK_ADVICE_SMALL = 4, HAK_ADVICES = 6 };

/* The sets: superslabs for everything; superslabs in the zone of blocks with a header byte; and superslabs of one class
 * alone, HAK_SET_OWN + class, or of arenas that are apart, which come from one of the first two sets and return to it
 * when they are wholly free. */
enum {
    HAK_SET_COMMON,
    HAK_SET_HEADERS,
    HAK_SET_OWN,
    HAK_SET_APART = HAK_SET_OWN + HAK_NCLASSES, /* plus the advice for their memory */
    HAK_NSETS = HAK_SET_APART + HAK_ADVICES,
};

HAK_INLINE unsigned hak_advice_of_set(unsigned set)
{
    return set > HAK_SET_APART ? set - HAK_SET_APART : HAK_ADVICE_NONE;
}

struct hak_superslab {
    struct hak_dirty pages;                             /* first: so its address is the superslab's */
    uint64_t free;                                      /* pages that are free, and not claimed by a purge */
    unsigned set;                                       /* HAK_SET_ */
    unsigned slabs;                                     /* pages that were taken for slabs */
    enum { HAK_IN_USE, HAK_CACHED, HAK_CLEARED } state; /* CLEARED: wholly free and clean, and in no cache */
    struct hak_superslab *next, *prev;                  /* links of the cache */
    uint64_t cached_ms;
    bool leaving;            /* in the cache, but to be evicted */
    _Atomic(uint8_t) advice; /* what the kernel was told; threads that hold pages of the superslab write what its set
                                demands, before they use them */
};

HAK_INLINE unsigned hak_page_index(const char *p)
{
    return (unsigned)((uintptr_t)p / HAK_PAGE % HAK_SUPERSLAB_PAGES);
}

/* The superslab of a page that space.c has handed out. */
HAK_INLINE struct hak_superslab *hak_superslab_of(const char *p)
{
    return hak_page_at((const char *)((uintptr_t)p & ~(HAK_SUPERSLAB - 1)))->region;
}

#endif
