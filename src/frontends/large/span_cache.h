/* SPDX-License-Identifier: MIT
 * Freed spans that are kept whole for the next request of their class, while the class's budget lasts. The budget
 * follows use: misses that a larger one had made hits raise it, spans that nobody came for lower it. Spans come and go
 * without a lock; the counts are rough. */
#ifndef LARGE_SPAN_CACHE_H
#define LARGE_SPAN_CACHE_H

#include "core/pages/slab.h"
#include "core/base/stats.h"

/* Spans have classes: each length up to 16 pages, then 8 for each doubling; the last one has all from 60 MiB on. */
#define SPAN_CLASSES 64u

HAK_INLINE unsigned hak_span_class(unsigned pages)
{
    if (pages <= 16)
        return pages - 1;
    unsigned lg = 31 - (unsigned)__builtin_clz(pages - 1);
    return (unsigned)hak_min(SPAN_CLASSES - 1, 16 + (lg - 4) * 8 + ((pages - 1) >> (lg - 3)) % 8);
}

/* The length that all smaller ones of the class are rounded up to. */
HAK_INLINE unsigned hak_span_class_pages(unsigned class)
{
    if (class < 16)
        return class + 1;
    if (class == SPAN_CLASSES - 1)
        return UINT32_MAX;
    unsigned lg = 4 + (class - 16) / 8;
    return (1u << lg) + ((class - 16) % 8 + 1) * (1u << (lg - 3));
}

/* A cached span of the class of so many pages, at least that long; NULL on a miss. */
struct hak_slab *hak_span_cache_pop(unsigned pages);
/* False, and the span is not taken, beyond the budget. */
bool hak_span_cache_push(struct hak_slab *span);
/* A list, linked by `next`, of the spans that nobody came for in `delay_ms`; the budget of their classes is lower
 * then. Under a lock of the caller's, which fork takes: some spans are on no stack meanwhile. */
struct hak_slab *hak_span_cache_age(uint64_t now_ms, uint64_t delay_ms);
size_t hak_span_cache_pages(void);
uint64_t hak_span_cache_hits(void);
void hak_span_cache_stats(struct hak_stats_writer *w);

#endif
