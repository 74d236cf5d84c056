/* SPDX-License-Identifier: MIT
 * See spans.h. A chunk is a row of spans, each used, cached or free; no two neighbours are free. Free ones
 * stand on lists by length, whose bits make the search for the best fit a lookup. Which pages hold old content
 * is a bit each: those that nobody used for the purge delay go back, and only they are cleared for calloc. A
 * chunk that is wholly free and clean goes back to the backend. */
#include "spans.h"

#include "core/bits.h"
#include "core/dispatch.h"
#include "core/limit.h"
#include "core/meta.h"
#include "huge.h"

#define CHUNK_MAX_PAGES 1024u /* 64 MiB */
#define WORDS (CHUNK_MAX_PAGES / 64)
#define CLASSES 64u
#define FIT_SCAN 16u    /* spans of a list that are looked at for the best fit */
#define BUDGET_MAX 16u
#define PURGE_RANGES 64u
#define CLEAN_BYTES (256 * HAK_MIB) /* that one call of age gives back, or a quarter of what is dirty */

enum state { FREE, USED, CACHED };

struct span {
    struct chunk *chunk;
    struct span *below, *above; /* by address */
    struct span *next, *prev;   /* free ones of a class, or cached ones */
    uint64_t since_ms;          /* when it was cached */
    uint16_t first, pages;
    uint8_t state;
};

struct chunk {
    char *base;
    void *region; /* the backend's, to give the run back with */
    unsigned pages;
    struct span *lowest;
    uint64_t dirty[WORDS], returned[WORDS];
    uint64_t used[WORDS]; /* ever */
    uint64_t returned_ms;
    uint64_t idle[WORDS]; /* of the dirty pages: those that were free at the last look */
    uint64_t looked_ms, freed_ms; /* the last look, and the last time that a span was freed here */
    struct chunk *next, *prev; /* all of them */
    enum hak_cause returned_for;
    enum huge_kind kind; /* of the block that it was mapped for */
};

/* The budget follows use: misses that a larger one had made hits raise it, spans that nobody came for lower it. */
struct class_cache {
    struct span *top;
    uint32_t count, budget;
    bool turned_away; /* a span, since the last miss: a larger budget would have made it a hit */
    uint64_t hits, misses;
};

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_SPANS);
static struct span *free_lists[CLASSES];
static uint64_t free_bits;
static struct class_cache caches[CLASSES];
static struct chunk *all_chunks;
static struct hak_meta_list dropped_spans, dropped_chunks;
static struct chunk *newest[HUGE_KINDS];
static size_t cached_pages, dirty_free_pages, dirty_free_spans, live_pages, chunk_pages, chunks;
static uint64_t taken, fresh_chunks, rounded, grown, merged, evicted, over_budget;

/* --- pages --------------------------------------------------------------------------------------------- */

/* Pages that went back lazily may still hold what they held. */
static const uint64_t *old_content(const struct chunk *c)
{
    return hak_release_is_lazy() ? c->used : c->dirty;
}

static unsigned dirty_in(const struct span *s)
{
    return hak_bits_count(s->chunk->dirty, s->first, s->pages);
}

/* --- classes: each length up to 16 pages, then 8 for each doubling -------------------------------------- */

static unsigned class_of(unsigned pages)
{
    if (pages <= 16)
        return pages - 1;
    unsigned lg = 31 - (unsigned)__builtin_clz(pages - 1);
    return 16 + (lg - 4) * 8 + ((pages - 1) >> (lg - 3)) % 8;
}

/* The length that all smaller ones of the class are rounded up to. */
static unsigned class_pages(unsigned class)
{
    if (class < 16)
        return class + 1;
    unsigned lg = 4 + (class - 16) / 8;
    return (1u << lg) + ((class - 16) % 8 + 1) * (1u << (lg - 3));
}

/* --- lists of free spans ---------------------------------------------------------------------------------- */

/* All spans of a list are at least as long as the class says below it. */
static unsigned list_of(unsigned pages)
{
    unsigned class = class_of(pages);
    return (unsigned)hak_min(pages == class_pages(class) || !class ? class : class - 1, CLASSES - 1);
}

static void link_free(struct span *s)
{
    unsigned list = list_of(s->pages);
    s->state = FREE;
    s->prev = NULL;
    s->next = free_lists[list];
    if (s->next)
        s->next->prev = s;
    free_lists[list] = s;
    free_bits |= (uint64_t)1 << list;
    unsigned dirty = dirty_in(s);
    dirty_free_pages += dirty;
    dirty_free_spans += dirty != 0;
}

static void unlink_free(struct span *s)
{
    unsigned list = list_of(s->pages);
    if (s->next)
        s->next->prev = s->prev;
    if (s->prev)
        s->prev->next = s->next;
    else if (!(free_lists[list] = s->next))
        free_bits &= ~((uint64_t)1 << list);
    s->next = s->prev = NULL;
    unsigned dirty = dirty_in(s);
    dirty_free_pages -= dirty;
    dirty_free_spans -= dirty != 0;
}

/* --- spans and chunks -------------------------------------------------------------------------------------- */

static struct span *new_span(struct chunk *c, unsigned first, unsigned pages)
{
    struct span *s = hak_meta_new(&dropped_spans, sizeof *s);
    if (!s)
        return NULL;
    s->chunk = c;
    s->first = (uint16_t)first;
    s->pages = (uint16_t)pages;
    return s;
}

/* Cuts a span that is on no list behind its first `pages`; the rest becomes free. Without memory for the rest's
 * descriptor the span stays as long as it is. */
static void split(struct span *s, unsigned pages)
{
    struct span *rest = s->pages > pages ? new_span(s->chunk, s->first + pages, s->pages - pages) : NULL;
    if (!rest)
        return;
    rest->below = s;
    rest->above = s->above;
    if (s->above)
        s->above->below = rest;
    s->above = rest;
    s->pages = (uint16_t)pages;
    link_free(rest);
}

/* Makes one of two neighbours. */
static struct span *merge(struct span *low, struct span *high)
{
    low->pages = (uint16_t)(low->pages + high->pages);
    low->above = high->above;
    if (high->above)
        high->above->below = low;
    hak_meta_drop(&dropped_spans, high);
    merged++;
    return low;
}

/* The newest chunk of the kind shows whether the program uses what it gets. */
static void choose_pages(struct chunk *c, unsigned request)
{
    c->kind = request > HUGE_LONG_PAGES ? HUGE_LONG : HUGE_SHORT;
    struct chunk *last = newest[c->kind];
    newest[c->kind] = c;
    if (!huge_matters(c->pages * HAK_PAGE))
        return;
    if (last) {
        unsigned head = (unsigned)hak_min(last->pages, HUGE_HEAD / HAK_PAGE);
        huge_look(c->kind, last->base, head * HAK_PAGE, hak_bits_count(old_content(last), 0, head) * HAK_PAGE);
    }
    huge_advise(c->kind, c->base, c->pages * HAK_PAGE, HUGE_HEAD);
}

/* A free span as long as the chunk. */
static struct span *map_chunk(unsigned pages, unsigned align, unsigned request)
{
    bool zeroed;
    struct chunk *c = hak_meta_new(&dropped_chunks, sizeof *c);
    struct span *s = c ? new_span(c, 0, pages) : NULL;
    struct hak_slab *run = s ? hak_dispatch.backend->acquire_run(pages, align, &zeroed) : NULL;
    if (!run) {
        if (s)
            hak_meta_drop(&dropped_spans, s);
        if (c)
            hak_meta_drop(&dropped_chunks, c);
        return NULL;
    }
    c->base = run->base;
    c->region = run->region;
    c->pages = pages;
    c->lowest = s;
    hak_space_forget(run, 0, pages);
    if (zeroed)
        hak_limit_give(pages * HAK_PAGE); /* nothing is touched yet */
    hak_bits_set(c->dirty, 0, pages, !zeroed);
    hak_bits_set(c->used, 0, pages, !zeroed);
    choose_pages(c, request);
    c->looked_ms = c->freed_ms = hak_os_coarse_ms();
    c->next = all_chunks;
    if (all_chunks)
        all_chunks->prev = c;
    all_chunks = c;
    link_free(s);
    chunks++;
    fresh_chunks++;
    chunk_pages += pages;
    return s;
}

/* A wholly free one. */
static void return_chunk(struct span *s)
{
    struct chunk *c = s->chunk;
    struct hak_slab *run = hak_space_page(c->base);
    unsigned dirty = dirty_in(s);
    unlink_free(s);
    run->base = c->base;
    run->pages = (uint16_t)c->pages;
    run->region = c->region;
    hak_space_describe(run, 0, c->pages);
    if (!dirty && !hak_release_is_lazy())
        atomic_store_explicit(&run->word, HAK_SLAB_RETURNED, memory_order_relaxed);
    hak_limit_take((c->pages - dirty) * HAK_PAGE); /* the backend gives up the whole run */
    hak_dispatch.backend->release(run);
    *(c->prev ? &c->prev->next : &all_chunks) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (newest[c->kind] == c)
        newest[c->kind] = NULL;
    chunks--;
    chunk_pages -= c->pages;
    hak_meta_drop(&dropped_chunks, c);
    hak_meta_drop(&dropped_spans, s);
}

static bool is_whole_chunk(const struct span *s)
{
    return s->pages == s->chunk->pages;
}

/* --- free spans ---------------------------------------------------------------------------------------------- */

/* The shortest of the first few that are long enough; among equal ones the one freed last. */
static struct span *best_of(struct span *list, unsigned pages)
{
    struct span *best = NULL;
    for (unsigned n = 0; list && n < FIT_SCAN; list = list->next, n++)
        if (list->pages >= pages && (!best || list->pages < best->pages))
            best = list;
    return best;
}

static struct span *best_fit(unsigned pages)
{
    struct span *s = best_of(free_lists[list_of(pages)], pages);
    uint64_t longer = list_of(pages) + 1 < 64 ? free_bits & ~(uint64_t)0 << (list_of(pages) + 1) : 0;
    return s || !longer ? s : best_of(free_lists[__builtin_ctzll(longer)], pages);
}

/* The longest list's: whoever grows has the most room there. */
static struct span *roomiest(unsigned pages)
{
    struct span *s = free_bits ? free_lists[63 - __builtin_clzll(free_bits)] : NULL;
    return s && s->pages >= pages ? s : NULL;
}

static struct span *put_free(struct span *s)
{
    if (s->below && s->below->state == FREE) {
        unlink_free(s->below);
        s = merge(s->below, s);
    }
    if (s->above && s->above->state == FREE) {
        unlink_free(s->above);
        s = merge(s, s->above);
    }
    link_free(s);
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

/* --- cached spans ---------------------------------------------------------------------------------------------- */

static struct span *cache_pop(unsigned pages)
{
    struct class_cache *cache = &caches[class_of(pages)];
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

static bool cache_push(struct span *s)
{
    struct class_cache *cache = &caches[class_of(s->pages)];
    size_t most = hak_dispatch.options.ace_cache_mb * HAK_MIB / HAK_PAGE;
    if (hak_dispatch.release->at_once || cache->count >= cache->budget || cached_pages + s->pages > most) {
        over_budget++;
        cache->turned_away = true;
        return false;
    }
    s->state = CACHED;
    s->next = cache->top;
    cache->top = s;
    cache->count++;
    cached_pages += s->pages;
    return true;
}

/* Frees the cached spans that nobody came for, and lowers the budget of their classes. */
static void cache_age(uint64_t now_ms, uint64_t delay_ms)
{
    for (unsigned i = 0; i < CLASSES && cached_pages; i++) {
        struct span **at = &caches[i].top;
        while (*at && now_ms - (*at)->since_ms < delay_ms)
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
            hak_bits_set(idle->chunk->idle, idle->first, idle->pages, true);
            put_free(idle);
        }
    }
}

/* --- taking and giving back ------------------------------------------------------------------------------------ */

static void note_regret(struct chunk *c, unsigned first, unsigned pages)
{
    unsigned again = hak_bits_set(c->returned, first, pages, false);
    if (again && hak_os_coarse_ms() - c->returned_ms < HAK_REGRET_MS)
        hak_os_regret(c->returned_for, again * HAK_PAGE);
}

static void use_pages(struct chunk *c, unsigned first, unsigned pages)
{
    hak_limit_take(hak_bits_set(c->dirty, first, pages, true) * HAK_PAGE);
    hak_bits_set(c->used, first, pages, true);
    hak_bits_set(c->idle, first, pages, false);
    note_regret(c, first, pages);
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
    unlink_free(s);
    if (skip) {
        struct span *skipped = s;
        split(skipped, skip);
        s = skipped->pages == skip ? skipped->above : NULL; /* NULL: no memory to split */
        link_free(skipped);
        if (!s)
            return NULL;
        unlink_free(s);
    }
    split(s, pages);
    return s;
}

/* Rounding to a class lets spans of its sizes serve each other, where it wastes little. */
static unsigned rounded_pages(struct span_request *r)
{
    unsigned pages = class_pages(class_of(r->pages));
    bool close = (pages - r->pages) * 100 <= pages * hak_dispatch.options.ace_waste_pct && pages <= SPAN_MAX_PAGES;
    r->fit = close ? SPAN_CLASS : SPAN_THRESHOLD;
    return close && r->align == 1 ? pages : r->pages;
}

static struct span *take(struct span_request *r)
{
    unsigned pages = rounded_pages(r), slack = r->align - 1;
    struct span *s = r->align == 1 && !r->growing ? cache_pop(pages) : NULL;
    if (s)
        return s;
    s = r->growing ? roomiest(pages + slack) : best_fit(pages + slack);
    if (!s && pages != r->pages && (s = best_fit(r->pages)))
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
        s->state = USED;
        const uint64_t *old = old_content(s->chunk);
        for (unsigned i = 0; r->zero && i < r->pages; i++)
            r->dirty[i / 64] |= (uint64_t)hak_bit(old, s->first + i) << i % 64;
        use_pages(s->chunk, s->first, s->pages);
        live_pages += s->pages;
        taken++;
        rounded += s->pages > r->pages;
        slab = describe(s);
    }
    hak_lock_release(&lock);
    return slab;
}

static size_t clean(uint64_t now_ms, uint64_t delay_ms, size_t keep_pages, size_t most, enum hak_cause cause);

/* What waits is bounded in bytes and in number. */
static void bound_queue(uint64_t now_ms)
{
    const struct hak_options *o = &hak_dispatch.options;
    size_t most = o->batch_max_mb * HAK_MIB / HAK_PAGE;
    if (hak_dispatch.release->at_once)
        clean(now_ms, 0, 0, SIZE_MAX, hak_dispatch.release->cause);
    else if (dirty_free_pages > most || dirty_free_spans > o->batch_max_ranges)
        clean(now_ms, 0, hak_min(most, dirty_free_pages) / 4 * 3, SIZE_MAX, hak_dispatch.release->cause);
}

void spans_put(struct hak_slab *slab)
{
    struct span *s = slab->chunk;
    hak_lock_acquire(&lock);
    hak_space_forget(slab, 0, slab->pages);
    uint64_t now = s->since_ms = s->chunk->freed_ms = hak_os_coarse_ms();
    live_pages -= s->pages;
    if (!cache_push(s))
        put_free(s);
    bound_queue(now);
    hak_lock_release(&lock);
}

static bool extend(struct span *s, unsigned pages)
{
    struct span *above = s->above;
    unsigned more = pages - s->pages;
    if (!above || above->state != FREE || above->pages < more)
        return false;
    unlink_free(above);
    split(above, more);
    use_pages(s->chunk, above->first, above->pages);
    live_pages += above->pages;
    merge(s, above);
    grown++;
    return true;
}

static void shrink(struct span *s, unsigned pages)
{
    unsigned before = s->pages;
    s->chunk->freed_ms = hak_os_coarse_ms();
    split(s, pages);
    live_pages -= before - s->pages;
    struct span *rest = s->above;
    if (before != s->pages && rest->above && rest->above->state == FREE) {
        unlink_free(rest);
        put_free(rest);
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

/* --- pages back to the kernel ------------------------------------------------------------------------------------ */

struct purge {
    struct iovec ranges[PURGE_RANGES];
    struct span *spans[PURGE_RANGES]; /* which each of them belongs to */
    unsigned n;
    size_t bytes;
    enum hak_cause cause;
};

static unsigned first_page(const struct purge *p, unsigned i)
{
    return (unsigned)((size_t)((char *)p->ranges[i].iov_base - p->spans[i]->chunk->base) / HAK_PAGE);
}

/* Free pages of a span become dirty, or cease to be. */
static void mark(struct span *s, unsigned first, unsigned pages, bool dirty)
{
    unsigned before = dirty_in(s), changed = hak_bits_set(s->chunk->dirty, first, pages, dirty);
    dirty_free_pages += dirty ? changed : 0u - (size_t)changed;
    if (changed && !before)
        dirty_free_spans++;
    if (changed && !dirty_in(s))
        dirty_free_spans--;
}

static void note_returned(struct purge *p, unsigned i)
{
    struct chunk *c = p->spans[i]->chunk;
    hak_bits_set(c->returned, first_page(p, i), (unsigned)(p->ranges[i].iov_len / HAK_PAGE), true);
    c->returned_ms = hak_os_coarse_ms();
    c->returned_for = p->cause;
}

/* What the kernel refuses is dirty again. Chunks that are wholly free and clean go back to the backend. */
static size_t send(struct purge *p)
{
    size_t returned = p->n ? hak_dispatch.release->release(p->ranges, p->n, p->cause) : 0;
    bool all = returned == p->bytes;
    if (all)
        hak_limit_give(returned);
    for (unsigned i = 0; i < p->n; i++)
        if (all)
            note_returned(p, i);
        else
            mark(p->spans[i], first_page(p, i), (unsigned)(p->ranges[i].iov_len / HAK_PAGE), true);
    for (unsigned i = 0; i < p->n; i++)
        if ((i + 1 == p->n || p->spans[i + 1] != p->spans[i]) && is_whole_chunk(p->spans[i]) && !dirty_in(p->spans[i]))
            return_chunk(p->spans[i]);
    p->n = 0;
    p->bytes = 0;
    return all ? returned : 0;
}

/* The dirty runs of a free span among the pages of `which`, NULL for all. Returns what went back meanwhile. */
static size_t add(struct purge *p, struct span *s, const uint64_t *which)
{
    struct chunk *c = s->chunk;
    size_t returned = 0;
    for (unsigned i = s->first, end = i + s->pages; i < end; i++) {
        unsigned from = i;
        while (i < end && hak_bit(c->dirty, i) && (!which || hak_bit(which, i)))
            i++;
        if (i == from)
            continue;
        if (p->n == PURGE_RANGES)
            returned += send(p);
        p->ranges[p->n] = (struct iovec){c->base + from * HAK_PAGE, (i - from) * HAK_PAGE};
        p->spans[p->n++] = s;
        p->bytes += (i - from) * HAK_PAGE;
        mark(s, from, i - from, false);
    }
    return returned;
}

/* The idle pages of a chunk. If nothing was freed in it for the delay, all its free pages are idle. */
static size_t clean_chunk(struct purge *p, struct chunk *c, uint64_t now_ms, uint64_t delay_ms)
{
    uint64_t idle[WORDS];
    size_t returned = 0;
    bool all = now_ms - c->freed_ms >= delay_ms;
    for (unsigned i = 0; i < WORDS; i++)
        idle[i] = c->idle[i];
    c->looked_ms = now_ms;
    hak_bits_set(c->idle, 0, c->pages, false);
    for (struct span *s = c->lowest, *above; s; s = above) {
        above = s->above;
        if (s->state != FREE)
            continue;
        hak_bits_set(c->idle, s->first, s->pages, true);
        returned += add(p, s, all ? NULL : idle);
    }
    return returned;
}

/* Down to so many dirty pages; a call gives back about `most` bytes. */
static size_t clean(uint64_t now_ms, uint64_t delay_ms, size_t keep_pages, size_t most, enum hak_cause cause)
{
    struct purge p = {.cause = cause};
    size_t returned = 0;
    for (struct chunk *c = all_chunks, *next; c && returned + p.bytes < most && dirty_free_pages > keep_pages; c = next) {
        next = c->next;
        if (now_ms - c->looked_ms >= delay_ms)
            returned += clean_chunk(&p, c, now_ms, delay_ms);
    }
    return returned + send(&p);
}

bool spans_age(uint64_t now_ms)
{
    uint64_t delay = hak_dispatch.options.purge_delay_ms;
    hak_lock_acquire(&lock);
    cache_age(now_ms, delay);
    size_t most = hak_max(CLEAN_BYTES, dirty_free_pages * HAK_PAGE / 4);
    bool more = clean(now_ms, delay, 0, most, hak_dispatch.release->cause) >= most;
    hak_lock_release(&lock);
    return more;
}

size_t spans_trim(size_t *keep)
{
    uint64_t now = hak_os_coarse_ms();
    hak_lock_acquire(&lock);
    cache_age(now, 0);
    size_t returned = clean(now, 0, *keep / HAK_PAGE, SIZE_MAX, HAK_CAUSE_trim);
    *keep -= hak_min(*keep, dirty_free_pages * HAK_PAGE);
    hak_lock_release(&lock);
    return returned;
}

/* --- the rest ------------------------------------------------------------------------------------------------------ */

void spans_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    uint64_t hits = 0, misses = 0, budget = 0;
    for (unsigned i = 0; i < CLASSES; i++) {
        hits += caches[i].hits;
        misses += caches[i].misses;
        budget += caches[i].budget;
    }
    hak_stats_number(w, "taken", taken);
    hak_stats_number(w, "rounded", rounded);
    hak_stats_number(w, "grown_in_place", grown);
    hak_stats_number(w, "merged", merged);
    hak_stats_number(w, "live_bytes", live_pages * HAK_PAGE);
    hak_stats_number(w, "dirty_bytes", dirty_free_pages * HAK_PAGE);
    hak_stats_number(w, "cached_bytes", cached_pages * HAK_PAGE);
    hak_stats_number(w, "cache_hits", hits);
    hak_stats_number(w, "cache_misses", misses);
    hak_stats_number(w, "cache_budget", budget);
    hak_stats_number(w, "cache_over_budget", over_budget);
    hak_stats_number(w, "cache_evicted", evicted);
    hak_stats_number(w, "chunks", chunks);
    hak_stats_number(w, "chunk_bytes", chunk_pages * HAK_PAGE);
    hak_stats_number(w, "chunks_mapped", fresh_chunks);
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
