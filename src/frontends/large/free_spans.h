/* SPDX-License-Identifier: MIT
 * Free spans, on lists by length whose bits make the search for the best fit a lookup. Under the lock of spans.c. */
#ifndef LARGE_FREE_SPANS_H
#define LARGE_FREE_SPANS_H

#include "span.h"

/* Makes a span free, whose neighbours are not; and takes one off its list, before anything of it changes. */
void hak_free_spans_add(struct span *s);
void hak_free_spans_remove(struct span *s);
/* The shortest of those that are looked at; NULL if none is long enough. It stays on its list. */
struct span *hak_free_spans_best(unsigned pages);
/* One of the longest: whoever grows has the most room there. */
struct span *hak_free_spans_roomiest(unsigned pages);
/* How many of them have dirty pages. */
size_t hak_free_spans_dirty(void);

#endif
