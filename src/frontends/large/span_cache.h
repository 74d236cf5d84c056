/* SPDX-License-Identifier: MIT
 * Freed spans that are kept whole for the next request of their class, while the class's budget lasts. The budget
 * follows use: a miss that a larger budget would have made a hit raises it; spans that stay unused lower it. Spans are
 * pushed and popped without a lock; the counts are approximate. */
#ifndef LARGE_SPAN_CACHE_H
#define LARGE_SPAN_CACHE_H

#include "core/pages/slab.h"
#include "core/base/stats.h"

#define SPAN_EXACT_PAGES 16u /* up to it each length is a class */

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

/* A cached span of the class, with at least `pages` pages; NULL on a miss. */
struct hak_slab *hak_span_cache_pop(unsigned pages);
/* Caches the span; false if that would exceed the budget. */
bool hak_span_cache_push(struct hak_slab *span);
/* Removes the spans that were unused for `delay_ms`, as a list linked by `next`, and lowers the budget of their
 * classes. The caller holds a lock that fork takes, since some spans are on no stack in the meantime. */
struct hak_slab *hak_span_cache_age(uint64_t now_ms, uint64_t delay_ms);
size_t hak_span_cache_pages(void);
uint64_t hak_span_cache_hits(void);
void hak_span_cache_stats(struct hak_stats_writer *w);

#endif
