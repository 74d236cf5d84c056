/* SPDX-License-Identifier: MIT
 * See span_cache.h. */
#include "span_cache.h"

#include "chunk.h"
#include "core/plugin.h"

#define BUDGET_MAX 16u

static struct class_cache {
    struct span *top;
    uint32_t count, budget;
    bool turned_away; /* a span, since the last miss: a larger budget would have made it a hit */
    uint64_t hits, misses;
} caches[SPAN_CLASSES];
static size_t cached_pages;
static uint64_t evicted, over_budget;

struct span *hak_span_cache_pop(unsigned pages)
{
    struct class_cache *cache = &caches[span_class(pages)];
    struct span *s = cache->top;
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

bool hak_span_cache_push(struct span *s)
{
    struct class_cache *cache = &caches[span_class(s->pages)];
    size_t most = hak_options.ace_cache_mb * HAK_MIB / HAK_PAGE;
    if (hak_parts.release->at_once || cache->count >= cache->budget || cached_pages + s->pages > most) {
        over_budget++;
        cache->turned_away = true;
        return false;
    }
    s->state = SPAN_CACHED;
    s->next = cache->top;
    cache->top = s;
    cache->count++;
    cached_pages += s->pages;
    return true;
}

void hak_span_cache_age(uint64_t now_ms, uint64_t delay_ms)
{
    for (unsigned i = 0; i < SPAN_CLASSES && cached_pages; i++) {
        struct span **at = &caches[i].top;
        while (*at && hak_clock_age((*at)->since_ms, now_ms) < delay_ms)
            at = &(*at)->next;
        struct span *idle = *at;
        *at = NULL;
        for (struct span *next; idle; idle = next) {
            next = idle->next;
            idle->next = NULL;
            cached_pages -= idle->pages;
            caches[i].count--;
            caches[i].budget /= 2;
            evicted++;
            hak_chunk_free(idle);
        }
    }
}

void hak_span_cache_stats(struct hak_stats_writer *w)
{
    uint64_t hits = 0, misses = 0, budget = 0;
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
