/* SPDX-License-Identifier: MIT
 * See spans.h. Here requests meet spans: from the cache of their class, the best fit among the free ones, or a new
 * chunk. The lock of this file guards all that concerns spans. */
#include "spans.h"

#include "chunk.h"
#include "core/parts/parts.h"
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
    struct span *s = hak_chunk_map((unsigned)most, align, pages);
    return s || most == least ? s : hak_chunk_map((unsigned)least, align, pages);
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
    hak_free_spans_remove(s);
    if (skip) {
        struct span *skipped = s;
        hak_chunk_split(skipped, skip);
        s = skipped->pages == skip ? skipped->above : NULL; /* NULL: no memory to split */
        hak_free_spans_add(skipped);
        if (!s)
            return NULL;
        hak_free_spans_remove(s);
    }
    hak_chunk_split(s, pages);
    return s;
}

/* Rounding to a class lets spans of its sizes serve each other, where it wastes little. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = span_class_pages(span_class(r->pages));
    bool close = (pages - r->pages) * 100 <= pages * hak_options.ace_waste_pct && pages <= SPAN_MAX_PAGES;
    r->fit = close ? SPAN_CLASS : SPAN_THRESHOLD;
    return close && r->align == 1 ? pages : r->pages;
}

static struct span *take(struct span_request *r)
{
    unsigned pages = rounded_pages(r), slack = r->align - 1;
    struct span *s = r->align == 1 && !r->growing ? hak_span_cache_pop(pages) : NULL;
    if (s)
        return s;
    s = r->growing ? hak_free_spans_roomiest(pages + slack) : hak_free_spans_best(pages + slack);
    if (!s && pages != r->pages && (s = hak_free_spans_best(r->pages)))
        r->fit = SPAN_EXHAUSTED;
    if (s && r->fit == SPAN_EXHAUSTED)
        pages = r->pages;
    if (!s)
        s = grow(r->growing ? (unsigned)hak_min(4 * pages, CHUNK_MAX_PAGES) : pages, pages, r->align);
    if (!s)
        r->fit = SPAN_EXHAUSTED;
    return s ? cut_free(s, pages, r->align) : NULL;
}

struct hak_slab *hak_spans_take(struct span_request *r)
{
    struct hak_slab *slab = NULL;
    hak_lock_acquire(&lock);
    struct span *s = take(r);
    if (s) {
        s->state = SPAN_USED;
        const uint64_t *old = chunk_old_content(s->chunk);
        for (unsigned i = 0; r->zero && i < r->pages; i++)
            r->dirty[i / 64] |= (uint64_t)hak_bit(old, s->first + i) << i % 64;
        hak_chunk_use(s->chunk, s->first, s->pages);
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
    const struct hak_option_values *o = &hak_options;
    size_t most = o->batch_max_mb * HAK_MIB / HAK_PAGE;
    if (hak_parts.release->at_once)
        hak_span_purge(now_ms, 0, 0, SIZE_MAX, hak_parts.release->cause);
    else if (hak_free_spans_dirty_pages() > most || hak_free_spans_dirty() > o->batch_max_ranges)
        hak_span_purge(now_ms, 0, hak_min(most, hak_free_spans_dirty_pages()) / 4 * 3, SIZE_MAX,
                       hak_parts.release->cause);
}

void hak_spans_put(struct hak_slab *slab)
{
    struct span *s = slab->chunk;
    hak_lock_acquire(&lock);
    hak_space_forget(slab, 0, slab->pages);
    uint64_t now = s->since_ms = s->chunk->freed_ms = hak_clock_ms();
    live_pages -= s->pages;
    if (!hak_span_cache_push(s))
        hak_chunk_put(s);
    bound_queue(now);
    hak_lock_release(&lock);
}

static bool extend(struct span *s, unsigned pages)
{
    struct span *above = s->above;
    unsigned more = pages - s->pages;
    if (!above || above->state != SPAN_FREE || above->pages < more)
        return false;
    hak_free_spans_remove(above);
    hak_chunk_split(above, more);
    hak_chunk_use(s->chunk, above->first, above->pages);
    live_pages += above->pages;
    hak_chunk_merge(s, above);
    grown++;
    return true;
}

static void shrink(struct span *s, unsigned pages)
{
    unsigned before = s->pages;
    s->chunk->freed_ms = hak_clock_ms();
    hak_chunk_split(s, pages);
    live_pages -= before - s->pages;
    struct span *rest = s->above;
    if (before != s->pages && rest->above && rest->above->state == SPAN_FREE) {
        hak_free_spans_remove(rest);
        hak_chunk_put(rest);
    }
}

bool hak_spans_resize(struct hak_slab *slab, unsigned pages)
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

bool hak_spans_age(uint64_t now_ms)
{
    uint64_t delay = hak_options.purge_delay_ms;
    hak_lock_acquire(&lock);
    hak_span_cache_age(now_ms, delay);
    size_t most = hak_max(CLEAN_BYTES, hak_free_spans_dirty_pages() * HAK_PAGE / 4);
    bool more = hak_span_purge(now_ms, delay, 0, most, hak_parts.release->cause) >= most;
    hak_lock_release(&lock);
    return more;
}

size_t hak_spans_trim(size_t *keep)
{
    uint64_t now = hak_clock_ms();
    hak_lock_acquire(&lock);
    hak_span_cache_age(now, 0);
    size_t returned = hak_span_purge(now, 0, *keep / HAK_PAGE, SIZE_MAX, HAK_CAUSE_trim);
    *keep -= hak_min(*keep, hak_free_spans_dirty_pages() * HAK_PAGE);
    hak_lock_release(&lock);
    return returned;
}

/* --- the rest ------------------------------------------------------------------------------------ */

void hak_spans_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_number(w, "taken", taken);
    hak_stats_number(w, "rounded", rounded);
    hak_stats_number(w, "grown_in_place", grown);
    hak_stats_number(w, "live_bytes", live_pages * HAK_PAGE);
    hak_stats_number(w, "dirty_bytes", hak_free_spans_dirty_pages() * HAK_PAGE);
    hak_span_cache_stats(w);
    hak_chunk_stats(w);
    hak_lock_release(&lock);
}

void hak_spans_fork_prepare(void)
{
    hak_lock_acquire(&lock);
}

void hak_spans_fork_done(void)
{
    hak_lock_release(&lock);
}
