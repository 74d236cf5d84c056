/* SPDX-License-Identifier: MIT
 * See span_cache.h. */
#include "span_cache.h"

#include "core/base/layout.h"
#include "core/plugin.h"

#define BUDGET_MAX 16u

static struct class_cache {
    struct hak_slab *top;
    uint32_t count, budget;
    bool turned_away; /* a span, since the last miss: a larger budget would have made it a hit */
    uint64_t hits, misses;
} caches[SPAN_CLASSES];
static size_t cached_pages;
static uint64_t evicted, over_budget;

struct hak_slab *hak_span_cache_pop(unsigned pages)
{
    struct class_cache *cache = &caches[hak_span_class(pages)];
    struct hak_slab *s = cache->top;
    if (!s || s->pages < pages) {
        cache->misses++;
        if (cache->turned_away && cache->budget < BUDGET_MAX)
            cache->budget++;
        cache->turned_away = false;
        return NULL;
    }
    cache->top = s->next;
    cache->count--;
    cache->hits++;
    cached_pages -= s->pages;
    return s;
}

bool hak_span_cache_push(struct hak_slab *s)
{
    struct class_cache *cache = &caches[hak_span_class(s->pages)];
    size_t most = hak_options.ace_cache_mb * HAK_MIB / HAK_PAGE;
    if (hak_parts.release->at_once || cache->count >= cache->budget || cached_pages + s->pages > most) {
        over_budget++;
        cache->turned_away = true;
        return false;
    }
    s->since_ms = hak_clock_ms();
    s->next = cache->top;
    cache->top = s;
    cache->count++;
    cached_pages += s->pages;
    return true;
}

/* Each stack has the one that was freed last on top. */
static struct hak_slab *take_idle(struct class_cache *cache, uint64_t now_ms, uint64_t delay_ms, struct hak_slab *list)
{
    struct hak_slab **at = &cache->top;
    while (*at && hak_clock_age((*at)->since_ms, now_ms) < delay_ms)
        at = &(*at)->next;
    struct hak_slab *idle = *at;
    *at = NULL;
    for (struct hak_slab *next; idle; idle = next) {
        next = idle->next;
        idle->next = list;
        list = idle;
        cached_pages -= idle->pages;
        cache->count--;
        cache->budget /= 2;
        evicted++;
    }
    return list;
}

struct hak_slab *hak_span_cache_age(uint64_t now_ms, uint64_t delay_ms)
{
    struct hak_slab *list = NULL;
    for (unsigned i = 0; i < SPAN_CLASSES && cached_pages; i++)
        list = take_idle(&caches[i], now_ms, delay_ms, list);
    return list;
}

void hak_span_cache_stats(struct hak_stats_writer *w)
{
    uint64_t hits = 0, misses = 0, budget = 0;
    HAK_SHOW_VARIABLE(caches);
    HAK_SHOW_SIZE(class_cache);
    HAK_SHOW_FIELD(class_cache, top);
    for (unsigned i = 0; i < SPAN_CLASSES; i++) {
        hits += caches[i].hits;
        misses += caches[i].misses;
        budget += caches[i].budget;
    }
    hak_stats_number(w, "cached_bytes", cached_pages * HAK_PAGE);
    hak_stats_number(w, "cache_hits", hits);
    hak_stats_number(w, "cache_misses", misses);
    hak_stats_number(w, "cache_budget", budget);
    hak_stats_number(w, "cache_over_budget", over_budget);
    hak_stats_number(w, "cache_evicted", evicted);
}
