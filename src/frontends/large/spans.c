/* SPDX-License-Identifier: MIT
 * See spans.h. A request is served by a span that waits in the run cache, by the best fit of the page heap, or by new
 * superslabs. Spans that were taken from the page heap and do not wait are live. */
#include "spans.h"

#include "core/base/layout.h"
#include "core/base/text.h"
#include "core/base/work.h"
#include "core/heap/heaps.h"
#include "core/os/huge_page.h"
#include "core/pages/closed.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "huge.h"

#define MAP_MAX_PAGES 2048u /* at most 128 MiB are mapped at once */
#define SPAN_SHORT HAK_RUN_SHORT(HAK_RUNS_SPANS)
#define PAGES_WORK 24u /* more work of a block whose span comes from the page heap, or goes there */

static _Atomic(size_t) pages_out; /* taken from the page heap by requests, and not put back by them */
static _Atomic(uint64_t) misses, over_budget;
static _Atomic(uint64_t) fresh, rounded, grown; /* fresh: not from the cache */

/* --- spans that wait ---------------------------------------------------------------------------------------- */

static void put_pages(struct hak_slab *span)
{
    HAK_SUB_RELAXED(&pages_out, span->pages);
    hak_run_cache_uncount(span);
    hak_work_add(PAGES_WORK);
    hak_pages_put(span);
}

static bool wastes_little(unsigned pages, unsigned wanted)
{
    return (pages - wanted) * 100 <= pages * hak_options.ace_waste_pct;
}

/* The long span that was freed last. If it is too short or too long, its pages become free, so that they may serve. */
static struct hak_slab *pop_long(unsigned pages)
{
    struct hak_slab *span = hak_run_cache_take_any(HAK_RUNS_SPANS, 0);
    if (!span || (span->pages >= pages && wastes_little(span->pages, pages)))
        return span;
    put_pages(span); /* a purge that is due then waits until this request has its pages */
    return NULL;
}

static struct hak_slab *pop_waiting(unsigned pages)
{
    struct hak_slab *span = pages <= HAK_RUN_LENGTHS ? hak_run_cache_take(HAK_RUNS_SPANS, pages) : NULL;
    if (!span && pages > SPAN_SHORT)
        span = pop_long(pages);
    if (HAK_UNLIKELY(!span))
        HAK_ADD_RELAXED(&misses, 1);
    return span;
}

/* --- huge pages ------------------------------------------------------------------------------------------- */

static _Atomic(char *) newest[HUGE_KINDS]; /* the pages last mapped for a block of the kind */

/* Samples how the program uses earlier pages, and decides whether new ones get huge pages. */
static void choose_span_pages(enum huge_kind kind, char *base, size_t bytes)
{
    char *last = HAK_EXCHANGE_ACQ_REL(&newest[kind], base); /* hak_pages_given reads its descriptors */
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
    size_t out = HAK_LOAD_RELAXED(&pages_out) - HAK_LOAD_RELAXED(&hak_run_cache.kinds[HAK_RUNS_SPANS].pages);
    size_t waiting = hak_run_cache_waiting(HAK_RUNS_SPANS);
    return out - hak_min(out, waiting); /* a span that another thread is freeing may be counted twice */
}

/* --- taking ----------------------------------------------------------------------------------------------- */

/* Rounds to a class where that wastes little, so that spans of similar sizes can replace each other. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = hak_span_rounded(r->pages);
    bool close = wastes_little(pages, r->pages) && pages <= SPAN_MAX_PAGES;
    r->fit = close ? SPAN_CLASS : SPAN_THRESHOLD;
    return close && r->align == 1 ? pages : r->pages;
}

/* Grows with the amount in use, so that calls are few and little is mapped for one block. */
static size_t map_pages(const struct hak_page_request *r)
{
    return hak_min(MAP_MAX_PAGES, hak_max(r->roomy ? 4 * r->pages : r->pages, live_pages()));
}

/* Takes free pages for the class, else for the exact length, else new ones for the class. */
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
        .map_pages = map_pages,
        .fresh = r->growing                   ? NULL
                 : r->pages > HUGE_LONG_PAGES ? choose_long
                                              : choose_short,
    };
    struct hak_slab *span = hak_pages_take_run(&p, HAK_PAGES_WHOLE);
    if (!span || p.pages != pages)
        r->fit = SPAN_EXHAUSTED;
    if (!span)
        return NULL;
    if (HAK_UNLIKELY(p.purged && pages * HAK_PAGE < HAK_HUGE_PAGE))
        hak_pages_keep_small(span->base, span->pages * HAK_PAGE);
    span->requested = 0;
    HAK_ADD_RELAXED(&pages_out, span->pages);
    HAK_ADD_RELAXED(&fresh, 1);
    hak_work_add(PAGES_WORK);
    return span;
}

/* The span, made accessible to the program. If the kernel refuses: gives the span back and returns NULL. */
static struct hak_slab *opened(struct hak_slab *span)
{
    if (!span || HAK_LIKELY(hak_closed_open(span->base, span->pages * HAK_PAGE)))
        return span;
    hak_spans_put(span);
    return NULL;
}

struct hak_slab *hak_spans_take_cached(unsigned pages)
{
    struct hak_slab *span = opened(pop_waiting(pages));
    if (span && span->pages != pages)
        HAK_ADD_RELAXED(&rounded, 1);
    return span;
}

struct hak_slab *hak_spans_take(struct span_request *r)
{
    unsigned pages = rounded_pages(r);
    struct hak_slab *span = NULL;
    if (r->align > 1 || r->growing)
        pop_long(SPAN_MAX_PAGES + 1); /* this only makes its pages free */
    else if (!r->missed)
        span = pop_waiting(pages);
    if (!span)
        span = take_pages(r, pages);
    else if (r->zero) /* the program wrote to it */
        hak_fill(r->dirty, 0xff, sizeof r->dirty);
    span = opened(span);
    if (span && span->pages != r->pages)
        HAK_ADD_RELAXED(&rounded, 1);
    hak_pages_bound();
    return span;
}

/* --- releasing ------------------------------------------------------------------------------------------ */

static HAK_NOINLINE bool put_and_bound(struct hak_slab *span)
{
    HAK_ADD_RELAXED(&over_budget, 1);
    put_pages(span);
    hak_pages_bound();
    return true;
}

/* A long span waits only if it and the dirty pages stay within the allowance of the last free. */
bool hak_spans_put(struct hak_slab *span)
{
    size_t pages = span->pages, most = hak_parts.release->at_once ? 0 : hak_options.ace_cache_mb;
    hak_closed_shut(span->base, pages * HAK_PAGE);
    if (HAK_UNLIKELY(most && !HAK_LOAD_RELAXED(&hak_pages_room_soon)))
        HAK_STORE_RELAXED(&hak_pages_room_soon, SPAN_SHORT); /* the page heap has not said how many may wait */
    if (HAK_LIKELY(most && (pages <= SPAN_SHORT || pages <= HAK_LOAD_RELAXED(&hak_pages_room))))
        span = hak_run_cache_put(HAK_RUNS_SPANS, span, most * HAK_MIB / HAK_PAGE);
    return HAK_LIKELY(!span) || put_and_bound(span);
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

/* --- the rest --------------------------------------------------------------------------------------------- */

uint64_t hak_spans_taken(void)
{
    struct hak_heaps_totals totals;
    hak_heaps_totals(&totals);
    return totals.counters.transitions[HAK_SLAB_UNUSED][HAK_SLAB_SPAN];
}

void hak_spans_stats(struct hak_stats_writer *w)
{
    uint64_t taken = hak_spans_taken();
    HAK_SHOW_VARIABLE(hak_run_cache);
    HAK_SHOW_FIELD(hak_run_cache, last);
    HAK_SHOW_FIELD(hak_run_cache, older);
    HAK_SHOW_NUMBER("run_rows", HAK_RUN_KINDS * (HAK_RUN_LENGTHS + 1));
    HAK_SHOW_NUMBER("run_pages_shift", HAK_RUN_PAGES_SHIFT);
    HAK_SHOW_NUMBER("stack_version_shift", HAK_SLAB_STACK_VERSION_SHIFT);
    hak_stats_number(w, "taken", taken);
    hak_stats_number(w, "rounded", HAK_LOAD_RELAXED(&rounded));
    hak_stats_number(w, "grown_in_place", HAK_LOAD_RELAXED(&grown));
    hak_stats_number(w, "live_bytes", live_pages() * HAK_PAGE);
    hak_stats_number(w, "cached_bytes", hak_run_cache_waiting(HAK_RUNS_SPANS) * HAK_PAGE);
    hak_stats_number(w, "cache_hits", taken - hak_min(taken, HAK_LOAD_RELAXED(&fresh)));
    hak_stats_number(w, "cache_misses", HAK_LOAD_RELAXED(&misses));
    hak_stats_number(w, "cache_over_budget", HAK_LOAD_RELAXED(&over_budget));
    hak_stats_number(w, "cache_evicted", HAK_LOAD_RELAXED(&hak_run_cache.kinds[HAK_RUNS_SPANS].runs));
}
