/* SPDX-License-Identifier: MIT
 * See spans.h. A request is served by a cached span of its class, by the best fit of the page heap, or by new
 * superslabs. Spans that were taken from the page heap and are not cached are live. Each class has a stack of cached
 * spans, so the span that was freed last serves first; no lock is taken, and the counts are approximate. */
#include "spans.h"

#include "core/base/layout.h"
#include "core/base/text.h"
#include "core/base/work.h"
#include "core/heap/heaps.h"
#include "core/pages/closed.h"
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "huge.h"

#define MAP_MAX_PAGES 2048u /* at most 128 MiB are mapped at once */
#define BUDGET_MAX 16u
#define PAGES_WORK 24u /* more work of a block whose span comes from the page heap, or goes there */

HAK_SELDOM struct class_cache hak_span_caches[SPAN_ROWS];
static struct class_cache *const caches = hak_span_caches;

static HAK_LOCK(aging, HAK_RANK_FRONTEND);      /* held while spans move from the cache to the page heap */
static _Atomic(size_t) pages_out, cached_pages; /* pages_out: taken from the page heap */
static _Atomic(uint64_t) misses, evicted, over_budget;
static _Atomic(uint64_t) fresh, rounded, grown; /* fresh: not from the cache */

/* --- the cache -------------------------------------------------------------------------------------------- */

/* Spans are counted while they are on a stack, and briefly before and after: no thread finds more spans than are
 * counted. */
static void uncount(struct class_cache *c, const struct hak_slab *span)
{
    HAK_SUB_RELAXED(&c->count, 1);
    HAK_SUB_RELAXED(&cached_pages, span->pages);
}

/* A span that is too short stays in the cache; NULL: there is none. */
static HAK_NOINLINE struct hak_slab *miss(struct class_cache *c, struct hak_slab *too_short)
{
    uint32_t budget = HAK_LOAD_RELAXED(&c->budget);
    if (too_short)
        hak_slab_stack_push(&c->spans, too_short);
    HAK_ADD_RELAXED(&misses, 1);
    if (HAK_LOAD_RELAXED(&c->turned_away) && budget < BUDGET_MAX)
        HAK_STORE_RELAXED(&c->budget, budget + 1);
    HAK_STORE_RELAXED(&c->turned_away, false);
    return NULL;
}

static size_t most_cached(void)
{
    return hak_parts.release->at_once ? 0 : hak_options.ace_cache_mb * HAK_MIB / HAK_PAGE;
}

static bool push_cached(struct hak_slab *span)
{
    struct class_cache *c = &caches[hak_span_class(span->pages)];
    if (HAK_LOAD_RELAXED(&c->count) < HAK_LOAD_RELAXED(&c->budget) &&
        HAK_LOAD_RELAXED(&cached_pages) + span->pages <= most_cached()) {
        HAK_ADD_RELAXED(&c->count, 1);
        HAK_ADD_RELAXED(&cached_pages, span->pages);
        span->since_ms = HAK_LOAD_RELAXED(&hak_awake_ms);
        hak_slab_stack_push(&c->spans, span);
        return true;
    }
    HAK_ADD_RELAXED(&over_budget, 1);
    HAK_STORE_RELAXED(&c->turned_away, true);
    return false;
}

static void put_pages(struct hak_slab *span)
{
    HAK_SUB_RELAXED(&pages_out, span->pages);
    hak_work_add(PAGES_WORK);
    hak_pages_put(span);
}

static bool wastes_little(unsigned pages, unsigned wanted)
{
    return (pages - wanted) * 100 <= pages * hak_options.ace_waste_pct;
}

/* The span that was freed last. If it is too short or too long, and its class does not keep it, its pages become free,
 * so that they may serve. */
static struct hak_slab *pop_recent(unsigned pages)
{
    _Atomic(uint64_t) *recent = hak_spans_recent(pages);
    struct hak_slab *span = hak_slab_stack_top(HAK_EXCHANGE_ACQUIRE(recent, 0));
    if (!span || (span->pages >= pages && wastes_little(span->pages, pages)))
        return span;
    if (!push_cached(span))
        put_pages(span); /* a purge that is due then waits until this request has its pages */
    return NULL;
}

static struct hak_slab *pop_cached(unsigned pages)
{
    struct class_cache *c = &caches[hak_span_class(pages)];
    struct hak_slab *span = pop_recent(pages);
    if (span)
        return span;
    span = hak_slab_stack_pop(&c->spans);
    if (HAK_UNLIKELY(!span || span->pages < pages))
        return miss(c, span);
    uncount(c, span);
    return span;
}

/* Prepends the idle spans of a class to the list. Younger ones are put back in their old order. */
static struct hak_slab *take_idle(struct class_cache *c, uint64_t now_ms, uint64_t delay_ms, struct hak_slab *list)
{
    struct hak_slab *young = NULL, *next;
    for (struct hak_slab *span = hak_slab_stack_take_all(&c->spans); span; span = next) {
        next = hak_slab_stack_next(span);
        struct hak_slab **to = hak_clock_age(span->since_ms, now_ms) < delay_ms ? &young : &list;
        span->next = *to;
        *to = span;
        if (to == &young)
            continue;
        uncount(c, span);
        HAK_STORE_RELAXED(&c->budget, HAK_LOAD_RELAXED(&c->budget) / 2);
        HAK_ADD_RELAXED(&evicted, 1);
    }
    for (; young; young = next) {
        next = young->next;
        hak_slab_stack_push(&c->spans, young);
    }
    return list;
}

/* The spans that were unused for `delay_ms`, as a list. Some spans are on no stack in the meantime: the caller holds
 * the lock. */
static struct hak_slab *take_all_idle(uint64_t now_ms, uint64_t delay_ms)
{
    struct hak_slab *list = NULL;
    for (unsigned i = 0; i < SPAN_CLASSES && HAK_LOAD_RELAXED(&cached_pages); i++)
        if (!hak_slab_stack_is_empty(&caches[i].spans))
            list = take_idle(&caches[i], now_ms, delay_ms, list);
    return list;
}

/* The same for the spans that were freed last: prepends them to the list. */
static struct hak_slab *take_idle_recent(uint64_t now_ms, uint64_t delay_ms, struct hak_slab *list)
{
    for (unsigned i = SPAN_CLASSES; i < SPAN_ROWS; i++) {
        uint64_t none = 0, word = HAK_EXCHANGE_ACQUIRE(&caches[i].spans.head, 0);
        struct hak_slab *span = hak_slab_stack_top(word);
        if (!span || (hak_clock_age(span->since_ms, now_ms) < delay_ms &&
                      HAK_CAS_WEAK_RELEASE(&caches[i].spans.head, &none, word)))
            continue;
        span->next = list;
        list = span;
        HAK_ADD_RELAXED(&evicted, 1);
    }
    return list;
}

static size_t recent_pages(void)
{
    size_t pages = 0;
    for (unsigned i = SPAN_CLASSES; i < SPAN_ROWS; i++)
        pages += HAK_LOAD_RELAXED(&caches[i].spans.head) >> HAK_SLAB_STACK_VERSION_SHIFT;
    return pages;
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
    size_t out = HAK_LOAD_RELAXED(&pages_out), cached = HAK_LOAD_RELAXED(&cached_pages) + recent_pages();
    return out - hak_min(out, cached); /* a span that another thread is freeing may be counted twice */
}

/* --- taking ----------------------------------------------------------------------------------------------- */

/* Rounds to a class where that wastes little, so that spans of similar sizes can replace each other. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = hak_span_class_pages(hak_span_class(r->pages));
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
    struct hak_slab *span = opened(pop_cached(pages));
    if (span && span->pages != pages)
        HAK_ADD_RELAXED(&rounded, 1);
    return span;
}

struct hak_slab *hak_spans_take(struct span_request *r)
{
    unsigned pages = rounded_pages(r);
    struct hak_slab *span = NULL;
    if (r->align > 1 || r->growing)
        pop_recent(SPAN_MAX_PAGES + 1); /* this only makes its pages free */
    else if (!r->missed)
        span = pop_cached(pages);
    if (!span)
        span = take_pages(r, pages);
    else if (r->zero) /* a cached span: the program wrote to it */
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
    put_pages(span);
    hak_pages_bound();
    return true;
}

bool hak_spans_put(struct hak_slab *span)
{
    size_t pages = span->pages, most = most_cached();
    hak_closed_shut(span->base, pages * HAK_PAGE);
    if (most && pages > RECENT_SHORT)
        most = HAK_LOAD_RELAXED(&hak_pages_room) / HAK_PAGE;
    if (HAK_LIKELY(pages <= most)) {
        uint64_t word = (uint64_t)pages << HAK_SLAB_STACK_VERSION_SHIFT | (uintptr_t)span >> HAK_SLAB_STACK_UNIT_LG;
        span->since_ms = HAK_LOAD_RELAXED(&hak_awake_ms);
        HAK_STORE_RELAXED(&span->below, NULL);
        span = hak_slab_stack_top(HAK_EXCHANGE_ACQ_REL(hak_spans_recent((unsigned)pages), word));
        if (HAK_LIKELY(!span))
            return true;
    }
    return HAK_LIKELY(push_cached(span)) || put_and_bound(span);
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
    for (span = take_idle_recent(now_ms, delay_ms, take_all_idle(now_ms, delay_ms)); span; span = next) {
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
    struct hak_heaps_totals totals;
    hak_heaps_totals(&totals);
    return totals.counters.transitions[HAK_SLAB_UNUSED][HAK_SLAB_SPAN];
}

void hak_spans_stats(struct hak_stats_writer *w)
{
    uint64_t budget = 0, taken = hak_spans_taken();
    HAK_SHOW_VARIABLE(hak_span_caches);
    HAK_SHOW_SIZE(class_cache);
    HAK_SHOW_FIELD(class_cache, spans);
    HAK_SHOW_NUMBER("stack_version_shift", HAK_SLAB_STACK_VERSION_SHIFT);
    for (unsigned i = 0; i < SPAN_CLASSES; i++)
        budget += HAK_LOAD_RELAXED(&caches[i].budget);
    hak_stats_number(w, "taken", taken);
    hak_stats_number(w, "rounded", HAK_LOAD_RELAXED(&rounded));
    hak_stats_number(w, "grown_in_place", HAK_LOAD_RELAXED(&grown));
    hak_stats_number(w, "live_bytes", live_pages() * HAK_PAGE);
    hak_stats_number(w, "cached_bytes", (HAK_LOAD_RELAXED(&cached_pages) + recent_pages()) * HAK_PAGE);
    hak_stats_number(w, "cache_hits", taken - hak_min(taken, HAK_LOAD_RELAXED(&fresh)));
    hak_stats_number(w, "cache_misses", HAK_LOAD_RELAXED(&misses));
    hak_stats_number(w, "cache_budget", budget);
    hak_stats_number(w, "cache_over_budget", HAK_LOAD_RELAXED(&over_budget));
    hak_stats_number(w, "cache_evicted", HAK_LOAD_RELAXED(&evicted));
}
