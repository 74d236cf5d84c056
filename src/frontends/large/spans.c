/* SPDX-License-Identifier: MIT
 * See spans.h. Here requests meet spans: from the cache of their class, the best fit among the free ones, or a new
 * chunk. The lock of this file guards all that concerns spans. */
#include "spans.h"

#include <string.h>

#include "chunk.h"
#include "core/base/bits.h"
#include "core/plugin.h"
#include "span_cache.h"
#include "span_purge.h"

static struct hak_lock *const lock = &hak_spans_lock;
static size_t live_pages;
static uint64_t taken, rounded, grown;

/* --- taking and giving back ---------------------------------------------------------------------- */

/* Where huge pages come quickly, and the program uses what it gets. */
static void choose_pages(struct hak_slab *run, enum huge_kind kind, struct huge_sample sample)
{
    size_t size = run->pages * HAK_PAGE;
    if (!hak_huge_matters(size))
        return;
    hak_huge_look(kind, sample);
    hak_huge_advise(kind, run->base, size, HUGE_HEAD);
}

/* The lock is let go of while the backend and the kernel are asked. NULL without memory. */
static struct span *map_chunk(unsigned pages, unsigned align, unsigned request)
{
    bool zero;
    enum huge_kind kind = request > HUGE_LONG_PAGES ? HUGE_LONG : HUGE_SHORT;
    struct huge_sample sample = hak_chunk_sample(kind);
    hak_lock_release(lock);
    struct hak_slab *run = hak_parts.backend->acquire_run(pages, align, &zero);
    if (run)
        choose_pages(run, kind, sample);
    hak_lock_acquire(lock);
    struct span *s = run ? hak_chunk_add(run, zero, kind) : NULL;
    if (run && !s) {
        hak_lock_release(lock);
        hak_parts.backend->release(run);
        hak_lock_acquire(lock);
    }
    return s;
}

/* A chunk grows with what is in use, so that few are needed and little is mapped for one block; near a limit it
 * is as small as will do. */
static struct span *grow(unsigned wish, unsigned pages, unsigned align)
{
    size_t least = hak_align_up(pages, HAK_SUPERSLAB_PAGES);
    size_t most = hak_align_up(hak_max(wish, hak_min(live_pages, CHUNK_MAX_PAGES)), HAK_SUPERSLAB_PAGES);
    struct span *s = map_chunk((unsigned)most, align, pages);
    return s || most == least ? s : map_chunk((unsigned)least, align, pages);
}

static struct hak_slab *describe(struct span *s)
{
    struct hak_slab *slab = hak_space_run(s->chunk->pages.base + s->first * HAK_PAGE, s->pages);
    slab->chunk = s;
    return slab;
}

/* Cuts a span behind its first pages; the rest is free. */
static void keep_first(struct span *s, unsigned pages)
{
    struct span *rest = hak_chunk_split(s, pages);
    if (rest)
        hak_free_spans_add(rest);
}

/* Takes what is needed of a free span; what alignment skips stays free. NULL without memory to cut it. */
static struct span *cut_free(struct span *s, unsigned pages, unsigned align)
{
    size_t number = ((uintptr_t)s->chunk->pages.base >> HAK_PAGE_LG) + s->first;
    unsigned skip = (unsigned)(hak_align_up(number, align) - number);
    hak_free_spans_remove(s);
    if (skip) {
        struct span *skipped = s;
        s = hak_chunk_split(skipped, skip);
        hak_free_spans_add(skipped);
        if (!s)
            return NULL;
    }
    keep_first(s, pages);
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

/* A free span of *pages, or of the exact length where none is as long as the class. */
static struct span *find_free(struct span_request *r, unsigned *pages)
{
    unsigned most = *pages + r->align - 1;
    struct span *s = r->growing ? hak_free_spans_roomiest(most) : hak_free_spans_best(most);
    if (s || *pages == r->pages)
        return s;
    s = hak_free_spans_best(r->pages); /* rounded requests have no alignment */
    if (s) {
        r->fit = SPAN_EXHAUSTED;
        *pages = r->pages;
    }
    return s;
}

static struct span *take(struct span_request *r)
{
    unsigned pages = rounded_pages(r);
    struct span *s = r->align == 1 && !r->growing ? hak_span_cache_pop(pages) : NULL;
    if (s)
        return s;
    s = find_free(r, &pages);
    if (!s)
        s = grow(r->growing ? (unsigned)hak_min(4 * pages, CHUNK_MAX_PAGES) : pages, pages, r->align);
    if (s)
        s = cut_free(s, pages, r->align);
    if (!s)
        r->fit = SPAN_EXHAUSTED;
    return s;
}

/* Which of its pages have old content. A cached one never left the program's hands. */
static void note_old(struct span_request *r, const struct span *s)
{
    const uint64_t *old = hak_dirty_old(&s->chunk->pages);
    if (s->state == SPAN_CACHED)
        memset(r->dirty, 0xff, sizeof r->dirty);
    for (unsigned i = 0; s->state != SPAN_CACHED && i < r->pages; i++)
        r->dirty[i / 64] |= (uint64_t)hak_bit(old, s->first + i) << i % 64;
}

static void use(struct span *s)
{
    if (s->state != SPAN_CACHED)
        hak_dirty_take(&s->chunk->pages, s->first, s->pages, false);
    s->state = SPAN_USED;
    live_pages += s->pages;
}

struct hak_slab *hak_spans_take(struct span_request *r)
{
    struct hak_slab *slab = NULL;
    hak_lock_acquire(lock);
    struct span *s = take(r);
    if (s) {
        if (r->zero)
            note_old(r, s);
        use(s);
        taken++;
        rounded += s->pages > r->pages;
        slab = describe(s);
    }
    hak_lock_release(lock);
    return slab;
}

static void return_chunks(void)
{
    hak_lock_acquire(lock);
    hak_chunks_unlock(lock);
}

/* Bytes that may wait: a setting, or fewer than do if they are too many ranges. */
static size_t most_waiting(void)
{
    const struct hak_option_values *o = &hak_options;
    size_t most = o->batch_max_mb * HAK_MIB, waiting = hak_chunks_dirty.waiting;
    return hak_free_spans_dirty() > o->batch_max_ranges && waiting ? hak_min(most, waiting - 1) : most;
}

/* Spans were freed: what is too much by that goes at once. */
static void unlock_and_bound(void)
{
    size_t most = most_waiting();
    bool due = hak_purge_is_due(&hak_spans_purger) || hak_chunks_dirty.waiting > most;
    hak_lock_release(lock);
    if (!due)
        return;
    hak_purge_due(&hak_spans_purger, most);
    return_chunks();
}

void hak_spans_put(struct hak_slab *slab)
{
    struct span *s = slab->chunk;
    hak_lock_acquire(lock);
    hak_space_forget(slab, 0, slab->pages);
    s->since_ms = hak_clock_ms();
    live_pages -= s->pages;
    if (!hak_span_cache_push(s))
        hak_chunk_free(s);
    unlock_and_bound();
}

static bool extend(struct span *s, unsigned pages)
{
    struct span *above = s->above;
    unsigned more = pages - s->pages;
    if (!above || above->state != SPAN_FREE || above->pages < more)
        return false;
    hak_free_spans_remove(above);
    keep_first(above, more);
    use(above);
    hak_chunk_merge(s, above);
    grown++;
    return true;
}

static void shrink(struct span *s, unsigned pages)
{
    struct span *rest = hak_chunk_split(s, pages);
    if (!rest)
        return;
    live_pages -= rest->pages;
    hak_chunk_free(rest);
}

bool hak_spans_resize(struct hak_slab *slab, unsigned pages)
{
    struct span *s = slab->chunk;
    hak_lock_acquire(lock);
    unsigned before = s->pages;
    bool done = pages <= before || extend(s, pages);
    if (pages < before)
        shrink(s, pages);
    hak_space_describe(slab, before, s->pages);
    hak_space_forget(slab, s->pages, before);
    slab->pages = s->pages;
    unlock_and_bound();
    return done;
}

/* --- pages back to the kernel -------------------------------------------------------------------- */

static void age_cache(uint64_t now_ms, uint64_t delay_ms)
{
    hak_lock_acquire(lock);
    hak_span_cache_age(now_ms, delay_ms);
    hak_lock_release(lock);
}

bool hak_spans_age(uint64_t now_ms)
{
    age_cache(now_ms, hak_options.purge_delay_ms);
    bool more = hak_purge_tick_of(&hak_spans_purger, now_ms);
    return_chunks();
    return more;
}

size_t hak_spans_trim(size_t *keep)
{
    age_cache(hak_clock_ms(), 0);
    size_t bytes = hak_purge_trim(&hak_spans_purger, *keep);
    return_chunks();
    hak_lock_acquire(lock);
    *keep -= hak_min(*keep, hak_chunks_dirty.waiting);
    hak_lock_release(lock);
    return bytes;
}

/* --- the rest ------------------------------------------------------------------------------------ */

void hak_spans_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(lock);
    hak_stats_number(w, "taken", taken);
    hak_stats_number(w, "rounded", rounded);
    hak_stats_number(w, "grown_in_place", grown);
    hak_stats_number(w, "live_bytes", live_pages * HAK_PAGE);
    hak_purge_stats(&hak_spans_purger, w);
    hak_span_cache_stats(w);
    hak_chunk_stats(w);
    hak_lock_release(lock);
}
