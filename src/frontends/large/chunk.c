/* SPDX-License-Identifier: MIT
 * See chunk.h. */
#include "chunk.h"

#include "core/parts/parts.h"
#include "core/pages/budget.h"
#include "core/os/meta.h"

static struct chunk *all_chunks, *newest[HUGE_KINDS];
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

void hak_chunk_split(struct span *s, unsigned pages)
{
    struct span *rest = s->pages > pages ? new_span(s->chunk, s->first + pages, s->pages - pages) : NULL;
    if (!rest)
        return;
    rest->below = s;
    rest->above = s->above;
    if (s->above)
        s->above->below = rest;
    s->above = rest;
    s->pages = (uint16_t)pages;
    hak_free_spans_add(rest);
}

struct span *hak_chunk_merge(struct span *low, struct span *high)
{
    low->pages = (uint16_t)(low->pages + high->pages);
    low->above = high->above;
    if (high->above)
        high->above->below = low;
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

/* --- chunks --------------------------------------------------------------------------------------------- */

/* The newest chunk of the kind shows whether the program uses what it gets. */
static void choose_pages(struct chunk *c, unsigned request)
{
    c->kind = request > HUGE_LONG_PAGES ? HUGE_LONG : HUGE_SHORT;
    struct chunk *last = newest[c->kind];
    newest[c->kind] = c;
    if (!hak_huge_matters(c->pages * HAK_PAGE))
        return;
    if (last) {
        unsigned head = (unsigned)hak_min(last->pages, HUGE_HEAD / HAK_PAGE);
        hak_huge_look(c->kind, last->base, head * HAK_PAGE,
                      hak_bits_count(chunk_old_content(last), 0, head) * HAK_PAGE);
    }
    hak_huge_advise(c->kind, c->base, c->pages * HAK_PAGE, HUGE_HEAD);
}

struct span *hak_chunk_map(unsigned pages, unsigned align, unsigned request)
{
    bool zeroed;
    struct chunk *c = hak_meta_new(&recycled_chunks, sizeof *c);
    struct span *s = c ? new_span(c, 0, pages) : NULL;
    struct hak_slab *run = s ? hak_parts.backend->acquire_run(pages, align, &zeroed) : NULL;
    if (!run) {
        if (s)
            hak_meta_recycle(&recycled_spans, s);
        if (c)
            hak_meta_recycle(&recycled_chunks, c);
        return NULL;
    }
    c->base = run->base;
    c->region = run->region;
    c->pages = pages;
    c->lowest = s;
    hak_space_forget(run, 0, pages);
    if (zeroed)
        hak_budget_give(pages * HAK_PAGE); /* nothing is touched yet */
    hak_bits_set(c->dirty, 0, pages, !zeroed);
    hak_bits_set(c->used, 0, pages, !zeroed);
    choose_pages(c, request);
    c->looked_ms = c->freed_ms = hak_clock_ms();
    c->next = all_chunks;
    if (all_chunks)
        all_chunks->prev = c;
    all_chunks = c;
    hak_free_spans_add(s);
    chunks++;
    mapped++;
    chunk_pages += pages;
    return s;
}

void hak_chunk_return(struct span *s)
{
    struct chunk *c = s->chunk;
    struct hak_slab *run = hak_space_page(c->base);
    unsigned dirty = span_dirty(s);
    hak_free_spans_remove(s);
    run->base = c->base;
    run->pages = (uint16_t)c->pages;
    run->region = c->region;
    hak_space_describe(run, 0, c->pages);
    if (!dirty && !hak_pages_go_lazily())
        HAK_STORE_RELAXED(&run->word, HAK_SLAB_RETURNED);
    hak_budget_take((c->pages - dirty) * HAK_PAGE); /* the backend gives up the whole run */
    hak_parts.backend->release(run);
    *(c->prev ? &c->prev->next : &all_chunks) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (newest[c->kind] == c)
        newest[c->kind] = NULL;
    chunks--;
    chunk_pages -= c->pages;
    hak_meta_recycle(&recycled_chunks, c);
    hak_meta_recycle(&recycled_spans, s);
}

static void note_regret(struct chunk *c, unsigned first, unsigned pages)
{
    unsigned again = hak_bits_set(c->returned, first, pages, false);
    if (again && hak_clock_ms() - c->returned_ms < HAK_REGRET_MS)
        hak_os_regret(c->returned_for, again * HAK_PAGE);
}

void hak_chunk_use(struct chunk *c, unsigned first, unsigned pages)
{
    hak_budget_take(hak_bits_set(c->dirty, first, pages, true) * HAK_PAGE);
    hak_bits_set(c->used, first, pages, true);
    hak_bits_set(c->idle, first, pages, false);
    note_regret(c, first, pages);
}

struct chunk *hak_chunk_first(void)
{
    return all_chunks;
}

void hak_chunk_stats(struct hak_stats_writer *w)
{
    hak_stats_number(w, "merged", merged);
    hak_stats_number(w, "chunks", chunks);
    hak_stats_number(w, "chunk_bytes", chunk_pages * HAK_PAGE);
    hak_stats_number(w, "chunks_mapped", mapped);
}
