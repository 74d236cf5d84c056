/* SPDX-License-Identifier: MIT
 * Spans and chunks. A chunk is a row of spans, each used, cached or free; no two neighbours are free. Which of its
 * pages hold old content is a bit each. Spans have classes: each length up to 16 pages, then 8 for each doubling;
 * the last one has all from 60 MiB on.
 * Private to spans.c and the files below it, all of which run under its lock:
 *
 *   spans.c -> span_cache.c, span_purge.c -> chunk.c -> free_spans.c */
#ifndef LARGE_SPAN_H
#define LARGE_SPAN_H

#include "core/base/bits.h"
#include "core/plugin.h"
#include "huge.h"

#define CHUNK_MAX_PAGES 2048u /* 128 MiB */
#define CHUNK_WORDS (CHUNK_MAX_PAGES / 64)
#define SPAN_CLASSES 64u

enum span_state { SPAN_FREE, SPAN_USED, SPAN_CACHED };

struct span {
    struct chunk *chunk;
    struct span *below, *above; /* by address */
    struct span *next, *prev;   /* free ones of a class, or cached ones */
    uint64_t since_ms;          /* when it was cached */
    uint16_t first, pages;
    uint8_t state;
};

struct chunk {
    char *base;
    void *region; /* the backend's, to give the run back with */
    unsigned pages;
    struct span *lowest;
    uint64_t dirty[CHUNK_WORDS], returned[CHUNK_WORDS];
    uint64_t used[CHUNK_WORDS]; /* ever */
    uint64_t returned_ms;
    uint64_t idle[CHUNK_WORDS]; /* of the dirty pages: those that were free at the last look */
    uint64_t looked_ms, freed_ms; /* the last look, and the last time that a span was freed here */
    struct chunk *next, *prev; /* all of them */
    enum hak_cause returned_for;
    enum huge_kind kind; /* of the block that it was mapped for */
};

/* Pages that went back lazily may still hold what they held. */
HAK_INLINE const uint64_t *chunk_old_content(const struct chunk *c)
{
    return hak_pages_go_lazily() ? c->used : c->dirty;
}

HAK_INLINE unsigned span_dirty(const struct span *s)
{
    return hak_bits_count(s->chunk->dirty, s->first, s->pages);
}

HAK_INLINE bool span_is_chunk(const struct span *s)
{
    return s->pages == s->chunk->pages;
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
