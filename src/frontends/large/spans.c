/* SPDX-License-Identifier: MIT
 * See spans.h. A request is served by a span from the cache of its class, by the best fit of the page heap, or by new
 * superslabs. Spans that were taken from the page heap and are not cached are live. */
#include "spans.h"

#include <string.h>

#include "core/pages/closed.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "huge.h"

#define MAP_MAX_PAGES 2048u /* 128 MiB at once */

static HAK_LOCK(aging, HAK_RANK_FRONTEND);      /* held while spans move from the cache to the page heap */
static _Atomic(size_t) pages_out;               /* taken from the page heap */
static _Atomic(uint64_t) fresh, rounded, grown; /* fresh: not from the cache */

/* --- huge pages ------------------------------------------------------------------------------------------- */

static _Atomic(char *) newest[HUGE_KINDS]; /* the pages last mapped for a block of the kind */

/* Samples how the program uses earlier pages, and decides whether new ones get huge pages. */
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

static size_t live_pages(void)
{
    size_t out = HAK_LOAD_RELAXED(&pages_out), cached = hak_span_cache_pages();
    return out - hak_min(out, cached); /* a span that another thread is freeing may be counted twice */
}

/* --- taking ----------------------------------------------------------------------------------------------- */

/* Rounds to a class where that wastes little, so that spans of similar sizes can replace each other. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = hak_span_class_pages(hak_span_class(r->pages));
    bool close = (pages - r->pages) * 100 <= pages * hak_options.ace_waste_pct && pages <= SPAN_MAX_PAGES;
    r->fit = close ? SPAN_CLASS : SPAN_THRESHOLD;
    return close && r->align == 1 ? pages : r->pages;
}

/* Takes free pages for the class, else for the exact length, else new ones for the class. The amount mapped at once
 * grows with the amount in use, so that calls are few and little is mapped for one block. */
static struct hak_slab *take_pages(struct span_request *r, unsigned pages)
{
    struct hak_page_request p = {
        .pages = pages,
        .least = r->pages,
        .align = r->align,
        .set = HAK_SET_COMMON,
        .roomy = r->growing,
        .old = r->zero ? r->dirty : NULL,
        .until = HAK_PAGES_MAPPED,
        .map_pages = hak_min(MAP_MAX_PAGES, hak_max(r->growing ? 4 * pages : pages, live_pages())),
        .fresh = r->pages > HUGE_LONG_PAGES ? choose_long : choose_short,
    };
    struct hak_slab *span = hak_pages_take_run(&p, HAK_PAGES_WHOLE);
    if (!span || p.pages != pages)
        r->fit = SPAN_EXHAUSTED;
    if (!span)
        return NULL;
    HAK_ADD_RELAXED(&pages_out, span->pages);
    HAK_ADD_RELAXED(&fresh, 1);
    return span;
}

/* The span, made accessible to the program; NULL, and the span goes back, if the kernel refuses. */
static struct hak_slab *opened(struct hak_slab *span)
{
    if (!span || HAK_LIKELY(hak_closed_open(span->base, span->pages * HAK_PAGE)))
        return span;
    hak_spans_put(span);
    return NULL;
}

struct hak_slab *hak_spans_take_cached(unsigned pages)
{
    return opened(hak_span_cache_pop(pages));
}

struct hak_slab *hak_spans_take(struct span_request *r)
{
    unsigned pages = rounded_pages(r);
    struct hak_slab *span = r->align == 1 && !r->growing && !r->missed ? hak_span_cache_pop(pages) : NULL;
    if (!span)
        span = take_pages(r, pages);
    else if (r->zero) /* a cached span: the program wrote to it */
        memset(r->dirty, 0xff, sizeof r->dirty);
    span = opened(span);
    if (span && span->pages != r->pages)
        HAK_ADD_RELAXED(&rounded, 1);
    return span;
}

/* --- releasing ------------------------------------------------------------------------------------------ */

static void put_pages(struct hak_slab *span)
{
    HAK_SUB_RELAXED(&pages_out, span->pages);
    hak_pages_put(span);
}

static HAK_NOINLINE bool put_and_bound(struct hak_slab *span)
{
    put_pages(span);
    hak_pages_bound();
    return true;
}

bool hak_spans_put(struct hak_slab *span)
{
    hak_closed_shut(span->base, span->pages * HAK_PAGE);
    return HAK_LIKELY(hak_span_cache_push(span)) || put_and_bound(span);
}

bool hak_spans_resize(struct hak_slab *span, unsigned pages)
{
    unsigned before = span->pages;
    if (pages == before)
        return true;
    if (pages < before)
        hak_closed_shut(span->base + pages * HAK_PAGE, (before - pages) * HAK_PAGE);
    if (!hak_pages_resize(span, pages))
        return false;
    if (HAK_UNLIKELY(pages > before && !hak_closed_open(span->base, pages * HAK_PAGE))) {
        hak_pages_resize(span, before);
        return false;
    }
    HAK_ADD_RELAXED(&pages_out, (size_t)pages - before);
    if (pages < before)
        hak_pages_bound();
    if (pages > before)
        HAK_ADD_RELAXED(&grown, 1);
    return true;
}

static void age(uint64_t now_ms, uint64_t delay_ms)
{
    struct hak_slab *span, *next;
    hak_lock_acquire(&aging);
    for (span = hak_span_cache_age(now_ms, delay_ms); span; span = next) {
        next = span->next;
        put_pages(span);
    }
    hak_lock_release(&aging);
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

uint64_t hak_spans_taken(void)
{
    return HAK_LOAD_RELAXED(&fresh) + hak_span_cache_hits();
}

void hak_spans_stats(struct hak_stats_writer *w)
{
    hak_stats_number(w, "taken", hak_spans_taken());
    hak_stats_number(w, "rounded", HAK_LOAD_RELAXED(&rounded));
    hak_stats_number(w, "grown_in_place", HAK_LOAD_RELAXED(&grown));
    hak_stats_number(w, "live_bytes", live_pages() * HAK_PAGE);
    hak_span_cache_stats(w);
}
