/* SPDX-License-Identifier: MIT
 * See lru.h. Cached regions keep their addresses; their pages may have gone back meanwhile. */
#include "lru.h"

#include "core/parts/parts.h"
#include "core/base/log.h"

static struct superslab *newest, *oldest;
static size_t cached, cached_superslabs;
static uint64_t pushes, hits, misses, evictions;

static void unlink_cached(struct superslab *s)
{
    *(s->prev ? &s->prev->next : &newest) = s->next;
    *(s->next ? &s->next->prev : &oldest) = s->prev;
    s->next = s->prev = NULL;
    cached--;
    cached_superslabs -= s->count;
}

/* False, and the region stays, where the kernel does not take the pages. */
static bool evict(struct superslab *s, enum hak_cause cause)
{
    if (s->dirty)
        hak_superslab_clean(s, cause);
    if (s->dirty)
        return false;
    unlink_cached(s);
    evictions++;
    if (hak_options.log_lru)
        hak_log("LRU_EVICT %p (%s)", (void *)s->base, hak_cause_name(cause));
    hak_superslab_unmap(s);
    return true;
}

static bool beyond_limits(void)
{
    const struct hak_option_values *o = &hak_options;
    return cached > o->lru_max_cached || cached_superslabs * HAK_SUPERSLAB > o->lru_max_mb * HAK_MIB;
}

void hak_lru_push(struct superslab *s)
{
    s->cached_since_ms = hak_clock_ms();
    s->prev = NULL;
    s->next = newest;
    *(newest ? &newest->prev : &oldest) = s;
    newest = s;
    cached++;
    cached_superslabs += s->count;
    pushes++;
    if (hak_options.log_lru)
        hak_log("LRU_PUSH %p, %zu cached", (void *)s->base, cached);
    while (oldest && beyond_limits() && evict(oldest, HAK_CAUSE_lru_evict))
        ;
}

static bool is_aligned(const struct superslab *s, size_t align)
{
    return ((uintptr_t)s->base >> HAK_SUPERSLAB_LG) % align == 0;
}

struct superslab *hak_lru_pop(size_t count, size_t align, bool header)
{
    struct superslab *s = newest;
    while (s && (s->count != count || !is_aligned(s, align) || hak_tag_in_header_zone(s->base) != header))
        s = s->next;
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

void hak_lru_age(uint64_t now_ms)
{
    uint64_t limit = hak_options.lru_ttl_sec * (uint64_t)1000;
    while (oldest && now_ms - oldest->cached_since_ms > limit && evict(oldest, HAK_CAUSE_lru_evict))
        ;
}

size_t hak_lru_trim(size_t keep, enum hak_cause cause)
{
    size_t before = hak_lru_bytes();
    while (oldest && hak_lru_bytes() > keep && evict(oldest, cause))
        ;
    return before - hak_lru_bytes();
}

size_t hak_lru_bytes(void)
{
    return cached_superslabs * HAK_SUPERSLAB;
}

void hak_lru_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "lru");
    hak_stats_number(w, "cached", cached);
    hak_stats_number(w, "cached_bytes", hak_lru_bytes());
    hak_stats_number(w, "pushes", pushes);
    hak_stats_number(w, "hits", hits);
    hak_stats_number(w, "misses", misses);
    hak_stats_number(w, "evictions", evictions);
    hak_stats_end(w);
}
