/* SPDX-License-Identifier: MIT
 * See spans.h. Here requests meet spans: from the cache of their class, the best fit among the free ones, or a new
 * chunk. The lock of this file guards all that concerns spans. */
#include "spans.h"

#include "chunk.h"
#include "core/dispatch.h"
#include "span_cache.h"
#include "span_purge.h"

#define CLEAN_BYTES (256 * HAK_MIB) /* that one call of age gives back, or a quarter of what is dirty */

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_SPANS);
static size_t live_pages;
static uint64_t taken, rounded, grown;

/* --- taking and giving back ---------------------------------------------------------------------- */

/* A chunk grows with what is in use, so that few are needed and little is mapped for one block; near a limit it
 * is as small as will do. */
static struct span *grow(unsigned wish, unsigned pages, unsigned align)
{
    size_t least = hak_align_up(pages, HAK_SUPERSLAB_PAGES);
    size_t most = hak_align_up(hak_max(wish, hak_min(live_pages, CHUNK_MAX_PAGES)), HAK_SUPERSLAB_PAGES);
    struct span *s = chunk_map((unsigned)most, align, pages);
    return s || most == least ? s : chunk_map((unsigned)least, align, pages);
}

static struct hak_slab *describe(struct span *s)
{
    struct hak_slab *slab = hak_space_page(s->chunk->base + s->first * HAK_PAGE);
    slab->base = s->chunk->base + s->first * HAK_PAGE;
    slab->pages = s->pages;
    slab->chunk = s;
    hak_space_describe(slab, 0, s->pages);
    return slab;
}

/* Takes what is needed of a free span; what alignment skips stays free. */
static struct span *cut_free(struct span *s, unsigned pages, unsigned align)
{
    size_t number = ((uintptr_t)s->chunk->base >> HAK_PAGE_LG) + s->first;
    unsigned skip = (unsigned)(hak_align_up(number, align) - number);
    free_spans_remove(s);
    if (skip) {
        struct span *skipped = s;
        chunk_split(skipped, skip);
        s = skipped->pages == skip ? skipped->above : NULL; /* NULL: no memory to split */
        free_spans_add(skipped);
        if (!s)
            return NULL;
        free_spans_remove(s);
    }
    chunk_split(s, pages);
    return s;
}

/* Rounding to a class lets spans of its sizes serve each other, where it wastes little. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = span_class_pages(span_class(r->pages));
    bool close = (pages - r->pages) * 100 <= pages * hak_dispatch.options.ace_waste_pct && pages <= SPAN_MAX_PAGES;
    r->fit = close ? SPAN_CLASS : SPAN_THRESHOLD;
    return close && r->align == 1 ? pages : r->pages;
}

static struct span *take(struct span_request *r)
{
    unsigned pages = rounded_pages(r), slack = r->align - 1;
    struct span *s = r->align == 1 && !r->growing ? span_cache_pop(pages) : NULL;
    if (s)
        return s;
    s = r->growing ? free_spans_roomiest(pages + slack) : free_spans_best(pages + slack);
    if (!s && pages != r->pages && (s = free_spans_best(r->pages)))
        r->fit = SPAN_EXHAUSTED;
    if (s && r->fit == SPAN_EXHAUSTED)
        pages = r->pages;
    if (!s)
        s = grow(r->growing ? (unsigned)hak_min(4 * pages, CHUNK_MAX_PAGES) : pages, pages, r->align);
    if (!s)
        r->fit = SPAN_EXHAUSTED;
    return s ? cut_free(s, pages, r->align) : NULL;
}

struct hak_slab *spans_take(struct span_request *r)
{
    struct hak_slab *slab = NULL;
    hak_lock_acquire(&lock);
    struct span *s = take(r);
    if (s) {
        s->state = SPAN_USED;
        const uint64_t *old = chunk_old_content(s->chunk);
        for (unsigned i = 0; r->zero && i < r->pages; i++)
            r->dirty[i / 64] |= (uint64_t)hak_bit(old, s->first + i) << i % 64;
        chunk_use(s->chunk, s->first, s->pages);
        live_pages += s->pages;
        taken++;
        rounded += s->pages > r->pages;
        slab = describe(s);
    }
    hak_lock_release(&lock);
    return slab;
}

/* What waits is bounded in bytes and in number. */
static void bound_queue(uint64_t now_ms)
{
    const struct hak_options *o = &hak_dispatch.options;
    size_t most = o->batch_max_mb * HAK_MIB / HAK_PAGE;
    if (hak_dispatch.release->at_once)
        span_purge(now_ms, 0, 0, SIZE_MAX, hak_dispatch.release->cause);
    else if (free_spans_dirty_pages() > most || free_spans_dirty() > o->batch_max_ranges)
        span_purge(now_ms, 0, hak_min(most, free_spans_dirty_pages()) / 4 * 3, SIZE_MAX, hak_dispatch.release->cause);
}

void spans_put(struct hak_slab *slab)
{
    struct span *s = slab->chunk;
    hak_lock_acquire(&lock);
    hak_space_forget(slab, 0, slab->pages);
    uint64_t now = s->since_ms = s->chunk->freed_ms = hak_os_coarse_ms();
    live_pages -= s->pages;
    if (!span_cache_push(s))
        chunk_put(s);
    bound_queue(now);
    hak_lock_release(&lock);
}

static bool extend(struct span *s, unsigned pages)
{
    struct span *above = s->above;
    unsigned more = pages - s->pages;
    if (!above || above->state != SPAN_FREE || above->pages < more)
        return false;
    free_spans_remove(above);
    chunk_split(above, more);
    chunk_use(s->chunk, above->first, above->pages);
    live_pages += above->pages;
    chunk_merge(s, above);
    grown++;
    return true;
}

static void shrink(struct span *s, unsigned pages)
{
    unsigned before = s->pages;
    s->chunk->freed_ms = hak_os_coarse_ms();
    chunk_split(s, pages);
    live_pages -= before - s->pages;
    struct span *rest = s->above;
    if (before != s->pages && rest->above && rest->above->state == SPAN_FREE) {
        free_spans_remove(rest);
        chunk_put(rest);
    }
}

bool spans_resize(struct hak_slab *slab, unsigned pages)
{
    struct span *s = slab->chunk;
    hak_lock_acquire(&lock);
    unsigned before = s->pages;
    bool done = pages <= before || extend(s, pages);
    if (pages < before)
        shrink(s, pages);
    hak_space_describe(slab, before, s->pages);
    hak_space_forget(slab, s->pages, before);
    slab->pages = s->pages;
    hak_lock_release(&lock);
    return done;
}

/* --- pages back to the kernel -------------------------------------------------------------------- */

bool spans_age(uint64_t now_ms)
{
    uint64_t delay = hak_dispatch.options.purge_delay_ms;
    hak_lock_acquire(&lock);
    span_cache_age(now_ms, delay);
    size_t most = hak_max(CLEAN_BYTES, free_spans_dirty_pages() * HAK_PAGE / 4);
    bool more = span_purge(now_ms, delay, 0, most, hak_dispatch.release->cause) >= most;
    hak_lock_release(&lock);
    return more;
}

size_t spans_trim(size_t *keep)
{
    uint64_t now = hak_os_coarse_ms();
    hak_lock_acquire(&lock);
    span_cache_age(now, 0);
    size_t returned = span_purge(now, 0, *keep / HAK_PAGE, SIZE_MAX, HAK_CAUSE_trim);
    *keep -= hak_min(*keep, free_spans_dirty_pages() * HAK_PAGE);
    hak_lock_release(&lock);
    return returned;
}

/* --- the rest ------------------------------------------------------------------------------------ */

void spans_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_number(w, "taken", taken);
    hak_stats_number(w, "rounded", rounded);
    hak_stats_number(w, "grown_in_place", grown);
    hak_stats_number(w, "live_bytes", live_pages * HAK_PAGE);
    hak_stats_number(w, "dirty_bytes", free_spans_dirty_pages() * HAK_PAGE);
    span_cache_stats(w);
    chunk_stats(w);
    hak_lock_release(&lock);
}

void spans_fork_prepare(void)
{
    hak_lock_acquire(&lock);
}

void spans_fork_done(void)
{
    hak_lock_release(&lock);
}
