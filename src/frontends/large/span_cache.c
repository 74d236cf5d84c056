/* SPDX-License-Identifier: MIT
 * See span_cache.h. Each class has a stack, so the span that was freed last serves first. */
#include "span_cache.h"

#include "core/base/layout.h"
#include "core/base/work.h"
#include "core/plugin.h"

#define BUDGET_MAX 16u

static struct class_cache {
    struct hak_slab_stack spans;
    _Atomic(uint32_t) count, budget;
    _Atomic(bool) turned_away; /* a span was rejected since the last miss: a larger budget would have made it a hit */
} caches[SPAN_CLASSES];
static _Atomic(size_t) cached_pages;
static _Atomic(uint64_t) hits, misses, evicted, over_budget;

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

struct hak_slab *hak_span_cache_pop(unsigned pages)
{
    struct class_cache *c = &caches[hak_span_class(pages)];
    struct hak_slab *span = hak_slab_stack_pop(&c->spans);
    if (HAK_UNLIKELY(!span || span->pages < pages))
        return miss(c, span);
    uncount(c, span);
    HAK_ADD_RELAXED(&hits, 1);
    return span;
}

bool hak_span_cache_push(struct hak_slab *span)
{
    struct class_cache *c = &caches[hak_span_class(span->pages)];
    size_t most = hak_parts.release->at_once ? 0 : hak_options.ace_cache_mb * HAK_MIB / HAK_PAGE;
    if (HAK_LOAD_RELAXED(&c->count) < HAK_LOAD_RELAXED(&c->budget) &&
        HAK_LOAD_RELAXED(&cached_pages) + span->pages <= most) {
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

struct hak_slab *hak_span_cache_age(uint64_t now_ms, uint64_t delay_ms)
{
    struct hak_slab *list = NULL;
    for (unsigned i = 0; i < SPAN_CLASSES && HAK_LOAD_RELAXED(&cached_pages); i++)
        if (!hak_slab_stack_is_empty(&caches[i].spans))
            list = take_idle(&caches[i], now_ms, delay_ms, list);
    return list;
}

size_t hak_span_cache_pages(void)
{
    return HAK_LOAD_RELAXED(&cached_pages);
}

uint64_t hak_span_cache_hits(void)
{
    return HAK_LOAD_RELAXED(&hits);
}

void hak_span_cache_stats(struct hak_stats_writer *w)
{
    uint64_t budget = 0;
    HAK_SHOW_VARIABLE(caches);
    HAK_SHOW_SIZE(class_cache);
    HAK_SHOW_FIELD(class_cache, spans);
    HAK_SHOW_NUMBER("stack_version_shift", HAK_SLAB_STACK_VERSION_SHIFT);
    for (unsigned i = 0; i < SPAN_CLASSES; i++)
        budget += HAK_LOAD_RELAXED(&caches[i].budget);
    hak_stats_number(w, "cached_bytes", hak_span_cache_pages() * HAK_PAGE);
    hak_stats_number(w, "cache_hits", hak_span_cache_hits());
    hak_stats_number(w, "cache_misses", HAK_LOAD_RELAXED(&misses));
    hak_stats_number(w, "cache_budget", budget);
    hak_stats_number(w, "cache_over_budget", HAK_LOAD_RELAXED(&over_budget));
    hak_stats_number(w, "cache_evicted", HAK_LOAD_RELAXED(&evicted));
}
