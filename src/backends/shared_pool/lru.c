/* SPDX-License-Identifier: MIT
 * See lru.h. Cached superslabs keep their addresses; their pages may have gone back meanwhile. */
#include "lru.h"

#include "core/base/list.h"
#include "core/plugin.h"

static struct superslab *newest, *oldest;
static size_t cached, cached_superslabs;
static uint64_t pushes, hits, misses, evictions;

static size_t cached_bytes(void)
{
    return cached_superslabs * HAK_SUPERSLAB;
}

static void unlink_cached(struct superslab *s)
{
    HAK_QUEUE_REMOVE(&oldest, &newest, s);
    s->cached = false;
    cached--;
    cached_superslabs -= s->count;
}

void hak_lru_push(struct superslab *s)
{
    s->cached_since_ms = hak_clock_ms();
    s->cached = true;
    HAK_QUEUE_ADD(&oldest, &newest, s);
    cached++;
    cached_superslabs += s->count;
    pushes++;
    if (hak_options.log_lru)
        hak_log("LRU_PUSH %p, %zu cached", (void *)s->pages.base, cached);
}

static bool fits(const struct superslab *s, size_t count, size_t align, bool header)
{
    return s->count == count && ((uintptr_t)s->pages.base >> HAK_SUPERSLAB_LG) % align == 0 &&
           hak_tag_in_header_zone(s->pages.base) == header && s->free == ALL_PAGES;
}

struct superslab *hak_lru_pop(size_t count, size_t align, bool header)
{
    struct superslab *s = newest;
    while (s && !fits(s, count, align, header))
        s = s->prev;
    if (s) {
        unlink_cached(s);
        hits++;
    } else {
        misses++;
    }
    if (hak_options.log_lru)
        hak_log("LRU_POP %s, %zu cached", s ? "hit" : "miss", cached);
    return s;
}

static bool is_unwanted(const struct superslab *s, size_t keep)
{
    const struct hak_option_values *o = &hak_options;
    return cached > o->lru_max_cached || cached_bytes() > hak_min(keep, o->lru_max_mb * HAK_MIB) ||
           hak_clock_age(s->cached_since_ms, hak_clock_ms()) > o->lru_ttl_sec * (uint64_t)1000;
}

struct superslab *hak_lru_unwanted(size_t keep)
{
    struct superslab *s = oldest;
    while (s && (s->free != ALL_PAGES || s->pages.refused))
        s = s->next;
    return s && is_unwanted(s, keep) ? s : NULL;
}

void hak_lru_evict(struct superslab *s, enum hak_cause cause)
{
    unlink_cached(s);
    evictions++;
    if (hak_options.log_lru)
        hak_log("LRU_EVICT %p (%s)", (void *)s->pages.base, hak_cause_name(cause));
    hak_superslab_unmap(s);
}

void hak_lru_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "lru");
    hak_stats_number(w, "cached", cached);
    hak_stats_number(w, "cached_bytes", cached_bytes());
    hak_stats_number(w, "pushes", pushes);
    hak_stats_number(w, "hits", hits);
    hak_stats_number(w, "misses", misses);
    hak_stats_number(w, "evictions", evictions);
    hak_stats_end(w);
}
