/* SPDX-License-Identifier: MIT
 * Spans: runs of the page heap for large blocks. A freed span waits in the run cache (pages/run_cache.h) for the next
 * request of its length; else it returns to the page heap, which finds best fits and merges neighbours. */
#ifndef LARGE_SPANS_H
#define LARGE_SPANS_H

#include "core/pages/run_cache.h"
#include "core/plugin.h"

#define SPAN_MAX_PAGES 1024u /* 64 MiB */

/* The length to which a class rounds up: each length up to 16 pages, then 8 per doubling. */
HAK_INLINE unsigned hak_span_rounded(unsigned pages)
{
    return pages <= 16 ? pages : (unsigned)hak_align_up(pages, 1u << (28 - __builtin_clz(pages - 1)));
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

/* A span of so many pages, up to SPAN_MAX_PAGES, that waits; NULL if there is none. */
struct hak_slab *hak_spans_take_cached(unsigned pages);
/* Takes a span: its descriptor, with base and pages set; NULL without memory. */
struct hak_slab *hak_spans_take(struct span_request *r);
/* Returns true. */
bool hak_spans_put(struct hak_slab *span);
/* Changes the length in place; false if the pages behind are taken. */
bool hak_spans_resize(struct hak_slab *span, unsigned pages);
uint64_t hak_spans_taken(void);
void hak_spans_stats(struct hak_stats_writer *w);

#endif
