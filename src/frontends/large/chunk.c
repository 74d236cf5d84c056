/* SPDX-License-Identifier: MIT
 * See chunk.h. */
#include "chunk.h"

#include "core/plugin.h"

/* A large block is filled for longer than its pages take to come, and a process that sleeps keeps what waits. */
struct hak_dirty_queue hak_chunks_dirty = {.unwanted_per_ms = HAK_DIRTY_UNWANTED_PER_MS / 4};
static struct chunk *newest[HUGE_KINDS];
static struct chunk *returning; /* wholly free and clean: they go back to the backend when the lock is let go of */
static struct hak_meta_list recycled_spans, recycled_chunks;
static size_t chunk_pages, chunks;
static uint64_t mapped, merged;

/* --- spans by address ---------------------------------------------------------------------------------- */

static struct span *new_span(struct chunk *c, unsigned first, unsigned pages)
{
    struct span *s = hak_meta_new(&recycled_spans, sizeof *s);
    if (!s)
        return NULL;
    s->chunk = c;
    s->first = (uint16_t)first;
    s->pages = (uint16_t)pages;
    return s;
}

struct span *hak_chunk_split(struct span *s, unsigned pages)
{
    struct span *rest = s->pages > pages ? new_span(s->chunk, s->first + pages, s->pages - pages) : NULL;
    if (!rest)
        return NULL;
    rest->below = s;
    rest->above = s->above;
    if (s->above)
        s->above->below = rest;
    s->above = rest;
    s->pages = (uint16_t)pages;
    return rest;
}

struct span *hak_chunk_merge(struct span *low, struct span *high)
{
    low->pages = (uint16_t)(low->pages + high->pages);
    low->above = high->above;
    if (high->above)
        high->above->below = low;
    if (low->chunk->looked_at == high)
        low->chunk->looked_at = low;
    hak_meta_recycle(&recycled_spans, high);
    merged++;
    return low;
}

struct span *hak_chunk_put(struct span *s)
{
    if (s->below && s->below->state == SPAN_FREE) {
        hak_free_spans_remove(s->below);
        s = hak_chunk_merge(s->below, s);
    }
    if (s->above && s->above->state == SPAN_FREE) {
        hak_free_spans_remove(s->above);
        s = hak_chunk_merge(s, s->above);
    }
    hak_free_spans_add(s);
    return s;
}

struct span *hak_chunk_free(struct span *s)
{
    hak_dirty_put(&s->chunk->pages, s->first, s->pages, true);
    return hak_chunk_put(s);
}

struct span *hak_chunk_find(struct chunk *c, unsigned page)
{
    struct span *s = c->looked_at;
    while (s->first > page)
        s = s->below;
    while (s->first + s->pages <= page)
        s = s->above;
    return c->looked_at = s;
}

/* --- chunks --------------------------------------------------------------------------------------------- */

struct huge_sample hak_chunk_sample(enum huge_kind kind)
{
    struct chunk *last = newest[kind];
    if (!last)
        return (struct huge_sample){0};
    unsigned head = (unsigned)hak_min(last->pages.pages, HUGE_HEAD / HAK_PAGE);
    return (struct huge_sample){last->pages.base, head * HAK_PAGE,
                                hak_dirty_given(&last->pages, 0, head) * HAK_PAGE};
}

struct span *hak_chunk_add(struct hak_slab *run, bool zero, enum huge_kind kind)
{
    struct chunk *c = hak_meta_new(&recycled_chunks, sizeof *c);
    struct span *s = c ? new_span(c, 0, run->pages) : NULL;
    if (!s) {
        if (c)
            hak_meta_recycle(&recycled_chunks, c);
        return NULL;
    }
    hak_dirty_open(&c->pages, &hak_chunks_dirty, run->base, run->pages, HAK_PAGE, c->bits, zero);
    c->region = run->region;
    c->looked_at = s;
    c->kind = kind;
    newest[kind] = c;
    hak_space_forget(run, 0, run->pages);
    hak_free_spans_add(s);
    chunks++;
    mapped++;
    chunk_pages += s->pages;
    return s;
}

void hak_chunk_return(struct span *s)
{
    struct chunk *c = s->chunk;
    hak_free_spans_remove(s);
    hak_meta_recycle(&recycled_spans, s);
    if (newest[c->kind] == c)
        newest[c->kind] = NULL;
    c->zero = hak_dirty_return(&c->pages);
    c->next = returning;
    returning = c;
    chunks--;
    chunk_pages -= c->pages.pages;
}

static void give_back(struct chunk *c)
{
    struct hak_slab *run = hak_space_run(c->pages.base, c->pages.pages);
    run->region = c->region;
    if (c->zero)
        HAK_STORE_RELAXED(&run->word, HAK_SLAB_RETURNED);
    hak_parts.backend->release(run);
}

void hak_chunks_unlock(struct hak_lock *lock)
{
    struct chunk *c = returning;
    returning = NULL;
    hak_lock_release(lock);
    for (struct chunk *next; c; c = next) {
        next = c->next;
        give_back(c);
        hak_lock_acquire(lock);
        hak_meta_recycle(&recycled_chunks, c);
        hak_lock_release(lock);
    }
}

void hak_chunk_stats(struct hak_stats_writer *w)
{
    hak_stats_number(w, "merged", merged);
    hak_stats_number(w, "chunks", chunks);
    hak_stats_number(w, "chunk_bytes", chunk_pages * HAK_PAGE);
    hak_stats_number(w, "chunks_mapped", mapped);
}
