/* SPDX-License-Identifier: MIT
 * Spans: runs of the page heap for large blocks. A freed span is cached for the next request of its class while the
 * class's budget lasts; else it returns to the page heap, which finds best fits and merges neighbours. The budget
 * follows use: a miss that a larger budget would have made a hit raises it; spans that stay unused lower it. */
#ifndef LARGE_SPANS_H
#define LARGE_SPANS_H

#include "core/plugin.h"

#define SPAN_MAX_PAGES 512u  /* 32 MiB */
#define SPAN_EXACT_PAGES 16u /* each length up to it is a class */

/* Span classes: one for each length up to 16 pages, then 8 per doubling; the last one covers all from 60 MiB on. */
#define SPAN_CLASSES 64u

HAK_INLINE unsigned hak_span_class(unsigned pages)
{
    if (pages <= SPAN_EXACT_PAGES)
        return pages - 1;
    unsigned lg = 31 - (unsigned)__builtin_clz(pages - 1);
    return (unsigned)hak_min(SPAN_CLASSES - 1, SPAN_EXACT_PAGES + (lg - 4) * 8 + ((pages - 1) >> (lg - 3)) % 8);
}

/* The length to which the class rounds up. */
HAK_INLINE unsigned hak_span_class_pages(unsigned class)
{
    if (class < SPAN_EXACT_PAGES)
        return class + 1;
    if (class == SPAN_CLASSES - 1)
        return UINT32_MAX;
    unsigned lg = 4 + (class - SPAN_EXACT_PAGES) / 8;
    return (1u << lg) + ((class - SPAN_EXACT_PAGES) % 8 + 1) * (1u << (lg - 3));
}

/* How a request was matched to its class. */
enum span_fit {
    SPAN_CLASS,     /* the length of a class, or rounded to it */
    SPAN_THRESHOLD, /* rounding would waste too much: exact */
    SPAN_EXHAUSTED, /* no span of the class: exact, or NULL */
};

struct span_request {
    unsigned pages, align;               /* both in pages; align is a power of two */
    bool missed;                         /* hak_spans_take_cached had none */
    bool growing;                        /* realloc moves a block here: prefer a place with free pages behind it */
    bool zero;                           /* the caller needs `dirty` */
    enum span_fit fit;                   /* result */
    uint64_t dirty[SPAN_MAX_PAGES / 64]; /* result: pages with old content */
};

/* The spans of a class wait on a stack. Those that were freed last wait alone: one for each length up to RECENT_SHORT
 * pages, and one that is longer. Its word is that of a stack with one span, with the length in place of the version. */
#define RECENT_SHORT 4u
#define SPAN_ROWS (SPAN_CLASSES + 1 + RECENT_SHORT)
extern HAK_HIDDEN struct class_cache {
    struct hak_slab_stack spans;
    _Atomic(uint32_t) count, budget;
    _Atomic(bool) turned_away; /* a span was rejected since the last miss: a larger budget would have made it a hit */
} hak_span_caches[SPAN_ROWS];

/* The word of the span that was freed last. */
HAK_INLINE _Atomic(uint64_t) *hak_spans_recent(unsigned pages)
{
    return &hak_span_caches[SPAN_CLASSES + (pages > RECENT_SHORT ? 0 : pages)].spans.head;
}

/* A cached span for so many pages, up to SPAN_MAX_PAGES; NULL if there is none. */
struct hak_slab *hak_spans_take_cached(unsigned pages);

/* The span that was freed last, if it has exactly so many pages; hardened builds open it first. It belongs to the
 * caller once the word is 0; acquire: another thread has described it. */
HAK_INLINE struct hak_slab *hak_spans_take_recent(unsigned pages)
{
    _Atomic(uint64_t) *recent = hak_spans_recent(pages);
    uint64_t word = HAK_LOAD_RELAXED(recent);
    bool fits = !HAK_HARDENED && word >> HAK_SLAB_STACK_VERSION_SHIFT == pages;
    return HAK_LIKELY(fits && HAK_CAS_ACQUIRE(recent, &word, 0)) ? hak_slab_stack_top(word) : NULL;
}

/* Takes a span: its descriptor, with base and pages set; NULL without memory. */
struct hak_slab *hak_spans_take(struct span_request *r);
/* Returns true. */
bool hak_spans_put(struct hak_slab *span);
/* Changes the length in place; false if the pages behind are taken. */
bool hak_spans_resize(struct hak_slab *span, unsigned pages);
/* Releases cached spans that were unused for the purge delay; releases all. */
void hak_spans_age(uint64_t now_ms);
void hak_spans_flush(void);
uint64_t hak_spans_taken(void);
void hak_spans_stats(struct hak_stats_writer *w);

#endif
