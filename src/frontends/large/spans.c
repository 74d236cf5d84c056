/* SPDX-License-Identifier: MIT
 * See spans.h. Here requests meet pages: a span from the cache of its class, the best fit of the page heap, or new
 * superslabs. The lock guards the cache alone. */
#include "spans.h"

#include <string.h>

#include "core/pages/closed.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "huge.h"
#include "span_cache.h"

#define MAP_MAX_PAGES 2048u /* 128 MiB at once */

static HAK_LOCK(spans_lock, HAK_RANK_FRONTEND);
static _Atomic(size_t) live_pages;
static _Atomic(uint64_t) spans_taken, rounded, grown;

/* --- huge pages ------------------------------------------------------------------------------------------- */

static _Atomic(char *) newest[HUGE_KINDS]; /* the last pages that were mapped for a block of the kind */

/* What they show of how the program uses what it gets, and whether new ones get huge pages therefore. */
static void choose_span_pages(enum huge_kind kind, char *base, size_t bytes)
{
    char *last = HAK_EXCHANGE_RELAXED(&newest[kind], base);
    size_t head = hak_min(HUGE_HEAD, HAK_SUPERSLAB);
    if (!hak_huge_matters(bytes))
        return;
    if (last)
        hak_huge_look(kind, (struct huge_sample){last, head, hak_pages_given(last, head / HAK_PAGE) * HAK_PAGE});
    hak_huge_advise(kind, base, bytes, head);
}

static void choose_short(char *base, size_t bytes)
{
    choose_span_pages(HUGE_SHORT, base, bytes);
}

static void choose_long(char *base, size_t bytes)
{
    choose_span_pages(HUGE_LONG, base, bytes);
}

/* --- taking ----------------------------------------------------------------------------------------------- */

/* Rounding to a class lets spans of its sizes serve each other, where it wastes little. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = hak_span_class_pages(hak_span_class(r->pages));
    bool close = (pages - r->pages) * 100 <= pages * hak_options.ace_waste_pct && pages <= SPAN_MAX_PAGES;
    r->fit = close ? SPAN_CLASS : SPAN_THRESHOLD;
    return close && r->align == 1 ? pages : r->pages;
}

/* What is mapped at once grows with what is in use, so that few calls are made and little is mapped for one block. */
static struct hak_slab *take_mapped(struct hak_page_request *p, const struct span_request *r, unsigned pages)
{
    size_t wish = r->growing ? 4 * pages : pages;
    p->pages = pages;
    p->map_pages = hak_min(MAP_MAX_PAGES, hak_max(wish, HAK_LOAD_RELAXED(&live_pages)));
    p->fresh = r->pages > HUGE_LONG_PAGES ? choose_long : choose_short;
    return hak_pages_take_run(p, HAK_PAGES_MAPPED);
}

/* Free pages for the class, else for the exact length, else new ones for the class. */
static struct hak_slab *take_pages(struct span_request *r, unsigned pages)
{
    struct hak_page_request p = {.pages = pages, .align = r->align, .set = HAK_SET_COMMON, .roomy = r->growing,
                                 .old = r->zero ? r->dirty : NULL};
    struct hak_slab *span = hak_pages_take_run(&p, HAK_PAGES_WHOLE);
    if (!span && pages != r->pages) {
        p.pages = r->pages;
        span = hak_pages_take_run(&p, HAK_PAGES_WHOLE);
        r->fit = span ? SPAN_EXHAUSTED : r->fit;
    }
    if (!span)
        span = take_mapped(&p, r, pages);
    if (!span)
        r->fit = SPAN_EXHAUSTED;
    return span;
}

static struct hak_slab *take_cached(struct span_request *r, unsigned pages)
{
    if (r->align != 1 || r->growing)
        return NULL;
    hak_lock_acquire(&spans_lock);
    struct hak_slab *span = hak_span_cache_pop(pages);
    hak_lock_release(&spans_lock);
    if (span && r->zero) /* it never left the program's hands */
        memset(r->dirty, 0xff, sizeof r->dirty);
    return span;
}

struct hak_slab *hak_spans_take(struct span_request *r)
{
    unsigned pages = rounded_pages(r);
    struct hak_slab *span = take_cached(r, pages);
    if (!span)
        span = take_pages(r, pages);
    if (!span)
        return NULL;
    HAK_ADD_RELAXED(&live_pages, span->pages);
    if (HAK_UNLIKELY(!hak_closed_open(span->base, span->pages * HAK_PAGE))) {
        hak_spans_put(span);
        return NULL;
    }
    HAK_ADD_RELAXED(&spans_taken, 1);
    if (span->pages != r->pages)
        HAK_ADD_RELAXED(&rounded, 1);
    return span;
}

/* --- giving back ------------------------------------------------------------------------------------------ */

void hak_spans_put(struct hak_slab *span)
{
    HAK_SUB_RELAXED(&live_pages, span->pages);
    hak_closed_shut(span->base, span->pages * HAK_PAGE);
    hak_lock_acquire(&spans_lock);
    bool kept = hak_span_cache_push(span);
    if (!kept)
        hak_pages_put(span);
    hak_lock_release(&spans_lock);
    if (!kept)
        hak_pages_bound();
}

bool hak_spans_resize(struct hak_slab *span, unsigned pages)
{
    unsigned before = span->pages;
    if (pages < before)
        hak_closed_shut(span->base + pages * HAK_PAGE, (before - pages) * HAK_PAGE);
    if (!hak_pages_resize(span, pages))
        return false;
    if (HAK_UNLIKELY(pages > before && !hak_closed_open(span->base, pages * HAK_PAGE))) {
        hak_pages_resize(span, before);
        return false;
    }
    HAK_ADD_RELAXED(&live_pages, (size_t)pages - before);
    if (pages < before)
        hak_pages_bound();
    if (pages > before)
        HAK_ADD_RELAXED(&grown, 1);
    return true;
}

static void age(uint64_t now_ms, uint64_t delay_ms)
{
    struct hak_slab *span, *next;
    hak_lock_acquire(&spans_lock);
    span = hak_span_cache_age(now_ms, delay_ms);
    for (; span; span = next) {
        next = span->next;
        hak_pages_put(span);
    }
    hak_lock_release(&spans_lock);
    hak_pages_bound();
}

void hak_spans_age(uint64_t now_ms)
{
    age(now_ms, hak_options.purge_delay_ms);
}

void hak_spans_flush(void)
{
    age(hak_clock_ms(), 0);
}

/* --- the rest --------------------------------------------------------------------------------------------- */

void hak_spans_stats(struct hak_stats_writer *w)
{
    hak_stats_number(w, "taken", HAK_LOAD_RELAXED(&spans_taken));
    hak_stats_number(w, "rounded", HAK_LOAD_RELAXED(&rounded));
    hak_stats_number(w, "grown_in_place", HAK_LOAD_RELAXED(&grown));
    hak_stats_number(w, "live_bytes", HAK_LOAD_RELAXED(&live_pages) * HAK_PAGE);
    hak_lock_acquire(&spans_lock);
    hak_span_cache_stats(w);
    hak_lock_release(&spans_lock);
}
