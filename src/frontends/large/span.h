/* SPDX-License-Identifier: MIT
 * Spans and chunks. A chunk is a row of spans, each used, cached, free, or claimed by a purge; no two neighbours
 * are free. The account of its pages knows those of used and cached spans as taken. Spans have classes: each length up to 16 pages, then 8 for each doubling;
 * the last one has all from 60 MiB on.
 * Private to spans.c and the files below it, all of which run under its lock:
 *
 *   spans.c -> span_cache.c, span_purge.c -> chunk.c -> free_spans.c */
#ifndef LARGE_SPAN_H
#define LARGE_SPAN_H

#include "core/pages/dirty.h"
#include "core/plugin.h"
#include "huge.h"

#define CHUNK_MAX_PAGES HAK_DIRTY_PAGES_MAX /* 128 MiB */
#define SPAN_CLASSES 64u

enum span_state { SPAN_FREE, SPAN_USED, SPAN_CACHED, SPAN_CLAIMED };

struct span {
    struct chunk *chunk;
    struct span *below, *above; /* by address */
    struct span *next, *prev;   /* free ones of a class, or cached ones */
    uint64_t since_ms;          /* when it was cached */
    uint16_t first, pages;
    uint8_t state;
    bool dirty; /* a free one: has dirty pages */
};

struct chunk {
    struct hak_dirty pages; /* first: an account leads to its chunk */
    uint64_t bits[HAK_DIRTY_WORDS(CHUNK_MAX_PAGES)];
    void *region; /* the backend's, to give the run back with */
    struct span *looked_at; /* any span of it: the one that was found last */
    struct chunk *next;  /* of those to be returned */
    enum huge_kind kind; /* of the block that it was mapped for */
    bool zero;           /* to be returned: reads as zero */
};

HAK_INLINE bool span_is_chunk(const struct span *s)
{
    return s->pages == s->chunk->pages.pages;
}

HAK_INLINE unsigned span_class(unsigned pages)
{
    if (pages <= 16)
        return pages - 1;
    unsigned lg = 31 - (unsigned)__builtin_clz(pages - 1);
    return (unsigned)hak_min(SPAN_CLASSES - 1, 16 + (lg - 4) * 8 + ((pages - 1) >> (lg - 3)) % 8);
}

/* The length that all smaller ones of the class are rounded up to. */
HAK_INLINE unsigned span_class_pages(unsigned class)
{
    if (class < 16)
        return class + 1;
    if (class == SPAN_CLASSES - 1)
        return CHUNK_MAX_PAGES;
    unsigned lg = 4 + (class - 16) / 8;
    return (1u << lg) + ((class - 16) % 8 + 1) * (1u << (lg - 3));
}

#endif
