/* SPDX-License-Identifier: MIT
 * Chunks: runs that the backend supplies, and the spans that they are cut into, by address. A chunk that is wholly
 * free and clean goes back to the backend. Under the lock of spans.c. */
#ifndef LARGE_CHUNK_H
#define LARGE_CHUNK_H

#include "free_spans.h"

/* A free span as long as a new chunk; `request` is the length that it is mapped for. NULL without memory. */
struct span *hak_chunk_map(unsigned pages, unsigned align, unsigned request);
/* Gives the chunk of a free span that is as long as it back. */
void hak_chunk_return(struct span *s);
/* Cuts a span that is on no list behind its first `pages`; the rest becomes free. Without memory for the rest's
 * descriptor the span stays as long as it is. */
void hak_chunk_split(struct span *s, unsigned pages);
/* Makes one of two neighbours. */
struct span *hak_chunk_merge(struct span *low, struct span *high);
/* Makes a span that is on no list free, together with its free neighbours. */
struct span *hak_chunk_put(struct span *s);
/* Pages are handed out: dirty from here on. */
void hak_chunk_use(struct chunk *c, unsigned first, unsigned pages);
/* All of them, by `next`. */
struct chunk *hak_chunk_first(void);
void hak_chunk_stats(struct hak_stats_writer *w);

#endif
