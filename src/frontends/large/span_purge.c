/* SPDX-License-Identifier: MIT
 * See span_purge.h. */
#include "span_purge.h"

#include "chunk.h"
#include "core/plugin.h"

/* The account is the chunk's first member. */
static struct chunk *chunk_of(struct hak_dirty *pages)
{
    return (struct chunk *)pages;
}

/* Puts back what could not be cut to the right length. */
static bool give_up(struct span *s)
{
    hak_chunk_put(s);
    return false;
}

/* Dirty pages that follow each other lie in one free span: of it they become a span by themselves. */
static HAK_COLD bool claim(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct span *s = hak_chunk_find(chunk_of(d), first), *rest;
    hak_free_spans_remove(s);
    if (s->first < first) {
        if (!(rest = hak_chunk_split(s, first - s->first)))
            return give_up(s);
        hak_free_spans_add(s);
        s = rest;
    }
    if (s->pages > pages) {
        if (!(rest = hak_chunk_split(s, pages)))
            return give_up(s);
        hak_free_spans_add(rest);
    }
    s->state = SPAN_CLAIMED;
    return true;
}

static HAK_COLD void settle(struct hak_dirty *d, unsigned first, unsigned pages)
{
    (void)pages;
    struct span *s = hak_chunk_put(hak_chunk_find(chunk_of(d), first));
    if (span_is_chunk(s) && !s->dirty)
        hak_chunk_return(s);
}

static enum hak_cause cause_of(const struct hak_dirty *d)
{
    (void)d;
    return hak_parts.release->cause;
}

HAK_LOCK(hak_spans_lock, HAK_RANK_FRONTEND);
static HAK_LOCK(purging, HAK_RANK_PURGE);

struct hak_purger hak_spans_purger = {
    .queue = &hak_chunks_dirty,
    .lock = &hak_spans_lock,
    .purging = &purging,
    .claim = claim,
    .settle = settle,
    .cause = cause_of,
};
