/* SPDX-License-Identifier: MIT
 * Freed spans that are kept whole for the next request of their class, while the class's budget lasts. The budget
 * follows use: misses that a larger one had made hits raise it, spans that nobody came for lower it. Under the lock
 * of spans.c. */
#ifndef LARGE_SPAN_CACHE_H
#define LARGE_SPAN_CACHE_H

#include "span.h"

/* A cached span of the class of so many pages, at least that long; NULL on a miss. */
struct span *hak_span_cache_pop(unsigned pages);
/* False, and the span is not taken, beyond the budget. */
bool hak_span_cache_push(struct span *s);
/* Frees the spans that nobody came for in `delay_ms`, and lowers the budget of their classes. */
void hak_span_cache_age(uint64_t now_ms, uint64_t delay_ms);
void hak_span_cache_stats(struct hak_stats_writer *w);

#endif
