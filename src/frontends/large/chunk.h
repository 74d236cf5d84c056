/* SPDX-License-Identifier: MIT
 * Chunks: runs that the backend supplies, and the spans that they are cut into, by address. A chunk that is wholly
 * free and clean goes back to the backend. Under the lock of spans.c. */
#ifndef LARGE_CHUNK_H
#define LARGE_CHUNK_H

#include "free_spans.h"

/* The account of all chunks. */
extern struct hak_dirty_queue hak_chunks_dirty;
/* Makes a chunk of a run of the backend's: a free span as long as it. NULL without memory for descriptors. */
struct span *hak_chunk_add(struct hak_slab *run, bool zero, enum huge_kind kind);
/* What the newest chunk of the kind shows of how the program uses what it gets. */
struct huge_sample hak_chunk_sample(enum huge_kind kind);
/* The chunk of a free span that is as long as it goes back, when the lock is let go of by hak_chunks_unlock. */
void hak_chunk_return(struct span *s);
void hak_chunks_unlock(struct hak_lock *lock);
/* Cuts a span that is on no list behind its first `pages`; the rest, which is on none either. NULL, and the span stays
 * as long as it is, if it is not longer, or without memory for the rest's descriptor. */
struct span *hak_chunk_split(struct span *s, unsigned pages);
/* Makes one of two neighbours. */
struct span *hak_chunk_merge(struct span *low, struct span *high);
/* Makes a span that is on no list free, together with its free neighbours: one that was claimed, or, and its pages
 * become dirty, one that was used. */
struct span *hak_chunk_put(struct span *s);
struct span *hak_chunk_free(struct span *s);
/* The span that a page lies in. */
struct span *hak_chunk_find(struct chunk *c, unsigned page);
void hak_chunk_stats(struct hak_stats_writer *w);

#endif
