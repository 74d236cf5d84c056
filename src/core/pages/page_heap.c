/* SPDX-License-Identifier: MIT
 * See page_heap.h. A free run is known by three things: the bit of each of its pages in their superslabs, its length in
 * the descriptor of its first page, and the way back to there in the descriptor of its last page. So neighbours join
 * without a search. Runs stand on lists by length, which are exact up to 16 pages and have 8 steps for each doubling
 * beyond; the shortest run that is long enough is found by a look at one word. */
#include "page_heap.h"

#include <limits.h>

#include "budget.h"
#include "closed.h"
#include "core/base/clock.h"
#include "core/base/layout.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/os/huge_page.h"
#include "core/os/meta.h"
#include "space.h"

#define LENGTHS 64u
#define FIT_SCAN 16u /* runs of a list that are looked at for the best fit */
#define ALL_PAGES (HAK_SUPERSLAB_PAGES == 64 ? ~(uint64_t)0 : ((uint64_t)1 << HAK_SUPERSLAB_PAGES % 64) - 1)

struct superslab {
    struct hak_dirty pages; /* first: an account leads to its superslab */
    uint64_t free;   /* pages that are, and not claimed by a purge */
    unsigned set;
    unsigned slabs;  /* pages that were taken for slabs */
    enum { IN_USE, CACHED, CLEARED } state; /* CLEARED: wholly free and clean, and in no cache */
    struct superslab *next, *prev;          /* of the cache */
    uint64_t cached_ms;
    bool leaving;                           /* in the cache, but not to stay there */
};

HAK_LOCK(hak_pages_lock, HAK_RANK_PAGES);

static struct free_runs {
    struct hak_slab *lists[LENGTHS];
    uint64_t bits; /* bit i: list i is not empty */
} free_runs[2];
static struct hak_slab *own_runs[HAK_NSETS - HAK_SET_OWN]; /* of a slab, or several, or a rest too short for one */

static struct superslab *newest, *oldest; /* of the cache */
static size_t cached, leaving;
static size_t runs; /* free ones */
static uint64_t pushes, hits, misses, evictions, mapped;
static bool check_waiting; /* something was put that makes it worth a look at what waits */
_Atomic(bool) hak_pages_due;

void hak_pages_start(uint64_t delay_ms, bool at_once)
{
    HAK_SHOW_SIZE(superslab);
    HAK_SHOW_FIELD(superslab, free);
    HAK_SHOW_FIELD(superslab, state);
    HAK_SHOW_FIELD(superslab, cached_ms);
    HAK_SHOW_FIELD(superslab, pages.old);
    HAK_SHOW_FIELD(superslab, pages.refused);
    HAK_SHOW_FIELD(superslab, pages.checked_ms);
    HAK_SHOW_NUMBER("superslab.cached", CACHED);
    hak_dirty_queue.delay_ms = delay_ms;
    hak_dirty_queue.at_once = at_once;
}

/* --- addresses ------------------------------------------------------------------------------------------ */

HAK_INLINE struct hak_slab *page_at(const char *p)
{
    uint64_t index = ((uintptr_t)p >> HAK_PAGE_LG) + hak_page_map.rotation;
    return &hak_page_map.descriptors[index & hak_page_map.mask];
}

/* Of pages that were handed out by space.c. */
HAK_INLINE struct superslab *superslab_of(const char *p)
{
    return page_at((const char *)((uintptr_t)p & ~(HAK_SUPERSLAB - 1)))->region;
}

static unsigned index_of(const char *p)
{
    return (unsigned)((uintptr_t)p / HAK_PAGE % HAK_SUPERSLAB_PAGES);
}

/* The first pages of a run, those in one superslab. */
struct part {
    struct superslab *s;
    unsigned first, pages;
    uint64_t bits;
};

static struct part part_of(char *base, size_t pages)
{
    unsigned first = index_of(base), n = (unsigned)hak_min(pages, HAK_SUPERSLAB_PAGES - first);
    return (struct part){superslab_of(base), first, n, hak_page_bits(first, n)};
}

#define EACH_PART(x, base, count)                                                              \
    for (size_t done_ = 0; done_ < (count); done_ += x.pages)                                  \
        for (bool once_ = (x = part_of((base) + done_ * HAK_PAGE, (count) - done_), true); once_; once_ = false)

/* The page behind or before one of a superslab, where it is free and of the same set; else NULL. Descriptors of
 * neighbours are neighbours, except where the table ends. */
static struct hak_slab *free_neighbour(const char *p, ptrdiff_t step)
{
    const char *q = p + step * (ptrdiff_t)HAK_PAGE;
    const struct superslab *s = superslab_of(p), *other = s;
    if ((uintptr_t)q >> HAK_SUPERSLAB_LG != (uintptr_t)p >> HAK_SUPERSLAB_LG) {
        struct hak_slab *page = hak_space_page(q);
        other = page ? superslab_of(q) : NULL;
        if (!other || other->set != s->set || s->set >= HAK_SET_OWN || page_at(q) != page_at(p) + step)
            return NULL;
    }
    return other->free >> index_of(q) & 1 ? page_at(q) : NULL;
}

/* --- free runs ------------------------------------------------------------------------------------------ */

HAK_INLINE unsigned length_class(size_t pages)
{
    if (pages <= 16)
        return (unsigned)pages - 1;
    unsigned lg = 63 - (unsigned)__builtin_clzll(pages);
    return (unsigned)hak_min(LENGTHS - 1, 16 + (lg - 4) * 8 + (pages >> (lg - 3)) % 8);
}

/* The address of a free run is in `free`: with `base` set it would pass for a slab. */
static void link_run(char *base, size_t pages)
{
    struct hak_slab *run = page_at(base);
    unsigned set = superslab_of(base)->set, length = length_class(pages);
    run->free = base;
    run->run_pages = pages;
    run[pages - 1].run_first = pages - 1;
    runs++;
    if (set >= HAK_SET_OWN) {
        HAK_LIST_PUSH(&own_runs[set - HAK_SET_OWN], run);
        return;
    }
    HAK_LIST_PUSH(&free_runs[set].lists[length], run);
    free_runs[set].bits |= (uint64_t)1 << length;
}

static void unlink_run(struct hak_slab *run)
{
    unsigned set = superslab_of(run->free)->set, length = length_class(run->run_pages);
    runs--;
    if (set >= HAK_SET_OWN) {
        HAK_LIST_REMOVE(&own_runs[set - HAK_SET_OWN], run);
        return;
    }
    HAK_LIST_REMOVE(&free_runs[set].lists[length], run);
    if (!free_runs[set].lists[length])
        free_runs[set].bits &= ~((uint64_t)1 << length);
}

/* Makes pages, whose bits are set, a free run, together with its free neighbours. */
static void join_run(char *base, size_t pages)
{
    struct hak_slab *below = free_neighbour(base, -1), *above = free_neighbour(base + (pages - 1) * HAK_PAGE, 1);
    if (below) {
        below -= below->run_first;
        base = below->free;
        pages += below->run_pages;
        unlink_run(below);
    }
    if (above) {
        pages += above->run_pages;
        unlink_run(above);
    }
    link_run(base, pages);
}

/* The free run that a page lies in. */
static struct hak_slab *run_at(char *p)
{
    for (;;) {
        unsigned i = index_of(p);
        uint64_t taken = ~(superslab_of(p)->free << (63 - i)); /* the pages from this one down */
        unsigned below = taken ? (unsigned)__builtin_clzll(taken) - 1 : 63;
        char *first = p - below * HAK_PAGE;
        if (below < i || !free_neighbour(first, -1))
            return page_at(first);
        p = first - HAK_PAGE;
    }
}

/* Takes pages off the run that they lie in. */
static void cut_run(char *base, size_t pages)
{
    struct hak_slab *run = run_at(base);
    char *first = run->free, *end = first + run->run_pages * HAK_PAGE, *behind = base + pages * HAK_PAGE;
    unlink_run(run);
    if (base > first)
        link_run(first, (size_t)(base - first) / HAK_PAGE);
    if (end > behind)
        link_run(behind, (size_t)(end - behind) / HAK_PAGE);
}

/* --- the cache of superslabs that are wholly free --------------------------------------------------------- */

static void leave_cache(struct superslab *s, bool evicted)
{
    if (s->state == CACHED) {
        HAK_QUEUE_REMOVE(&oldest, &newest, s);
        cached--;
        leaving -= s->leaving;
        s->leaving = false;
        if (hak_options.log_lru)
            hak_log("%s %p, %zu cached", evicted ? "LRU_EVICT" : "LRU_POP hit", (void *)s->pages.base, cached);
    }
    s->state = evicted ? CLEARED : IN_USE;
}

/* All pages of a superslab are free. One of a class alone is everybody's from here on. */
static void enter_cache(struct superslab *s, uint64_t now_ms)
{
    if (hak_options.log_free)
        hak_log("SS_FREE superslab %p is wholly empty", (void *)s->pages.base);
    if (s->set >= HAK_SET_OWN) {
        s->leaving = true;
        leaving++;
        unlink_run(page_at(s->pages.base));
        s->set = hak_tag_in_header_zone(s->pages.base) ? HAK_SET_HEADERS : HAK_SET_COMMON;
        join_run(s->pages.base, HAK_SUPERSLAB_PAGES);
    }
    if (HAK_UNLIKELY(hak_huge_page_is_on()) && s->pages.old)
        hak_dirty_soil(&s->pages, ALL_PAGES);
    s->state = CACHED;
    s->cached_ms = now_ms;
    HAK_QUEUE_ADD(&oldest, &newest, s);
    cached++;
    pushes++;
    check_waiting = true;
    if (hak_options.log_lru)
        hak_log("LRU_PUSH %p, %zu cached", (void *)s->pages.base, cached);
}

static bool is_unwanted(const struct superslab *s, size_t keep, uint64_t now_ms)
{
    const struct hak_option_values *o = &hak_options;
    return cached > o->lru_max_cached || cached * HAK_SUPERSLAB > hak_min(keep, o->lru_max_mb * HAK_MIB) ||
           hak_clock_age(s->cached_ms, now_ms) > o->lru_ttl_sec * (uint64_t)1000;
}

/* One that is to leave, or the oldest one if it is beyond the limits in number, bytes and age, or beyond `keep` bytes;
 * NULL if none is. What the kernel refused, and what a purge has claimed just now, is passed over. */
static struct superslab *unwanted(size_t keep, uint64_t now_ms)
{
    struct superslab *first = NULL;
    for (struct superslab *s = oldest; s && (leaving || !first); s = s->next) {
        if (s->free != ALL_PAGES || s->pages.refused)
            continue;
        if (s->leaving)
            return s;
        if (!first)
            first = s;
    }
    return first && is_unwanted(first, keep, now_ms) ? first : NULL;
}

/* --- taking --------------------------------------------------------------------------------------------- */

static void tell_old(uint64_t *words, size_t first, uint64_t old, size_t pages)
{
    for (size_t i = first; i < first + pages; i++, old >>= 1)
        words[i / 64] = (words[i / 64] & ~((uint64_t)1 << i % 64)) | (old & 1) << i % 64;
}

/* Free pages become taken. True: they read as zero; with `uncharged` none of them is charged then, else all are. */
static bool occupy(char *base, size_t pages, const struct hak_page_request *r)
{
    struct part x;
    size_t zero_pages = 0;
    cut_run(base, pages);
    EACH_PART(x, base, pages)
    {
        if (r->old)
            tell_old(r->old, done_, hak_dirty_old(&x.s->pages) >> x.first, x.pages);
        hits += x.s->state == CACHED;
        leave_cache(x.s, false);
        x.s->free &= ~x.bits;
        x.s->slabs += r->slab ? x.pages : 0;
        if (hak_dirty_take(&x.s->pages, x.bits, r->uncharged))
            zero_pages += x.pages;
    }
    if (r->uncharged && zero_pages < pages)
        hak_budget_take(zero_pages * HAK_PAGE);
    return zero_pages == pages;
}

/* Where an aligned place for the request begins in a free run; NULL if it is too short. */
static char *place_in(const struct hak_slab *run, const struct hak_page_request *r)
{
    char *base = (char *)hak_align_up((uintptr_t)run->free, hak_max(r->align, 1) * HAK_PAGE);
    return base + r->pages * HAK_PAGE <= (char *)run->free + run->run_pages * HAK_PAGE ? base : NULL;
}

/* In the shortest of the first `scan` runs that is long enough; of equal ones in the one that was freed last. */
static char *best_in(struct hak_slab *list, unsigned scan, const struct hak_page_request *r, size_t most)
{
    const struct hak_slab *best = NULL;
    for (; list && scan; list = list->next, scan--)
        if (list->run_pages <= most && (!best || list->run_pages < best->run_pages) && place_in(list, r))
            best = list;
    return best ? place_in(best, r) : NULL;
}

static char *best_of_set(unsigned set, const struct hak_page_request *r, size_t most)
{
    if (set >= HAK_SET_OWN)
        return best_in(own_runs[set - HAK_SET_OWN], UINT_MAX, r, most);
    uint64_t bits = free_runs[set].bits >> length_class(r->pages) << length_class(r->pages);
    if (r->roomy && bits)
        bits = (uint64_t)1 << (63 - __builtin_clzll(bits));
    char *base = NULL;
    for (; bits && !base; bits &= bits - 1)
        base = best_in(free_runs[set].lists[__builtin_ctzll(bits)], FIT_SCAN, r, most);
    return base;
}

/* Bit i of the result: a run of `pages` ones begins at bit i. */
static uint64_t run_starts(uint64_t bits, size_t pages)
{
    for (size_t have = 1, step; have < pages; have += step) {
        step = hak_min(have, pages - have);
        bits &= bits >> step;
    }
    return bits;
}

static char *dirty_place(const struct hak_page_request *r)
{
    unsigned left = r->pages <= HAK_SUPERSLAB_PAGES ? hak_options.empty_scan_limit : 0;
    for (const struct hak_dirty *d = hak_dirty_queue.last; d && left; d = d->prev, left--) {
        const struct superslab *s = (const struct superslab *)d;
        uint64_t starts = s->set == r->set ? run_starts(s->free & s->pages.old, r->pages) : 0;
        if (starts)
            return s->pages.base + (size_t)__builtin_ctzll(starts) * HAK_PAGE;
    }
    return NULL;
}

/* The set from which superslabs of one class come. */
static unsigned supplier_of(const struct hak_page_request *r)
{
    return r->set < HAK_SET_OWN ? r->set : r->header ? HAK_SET_HEADERS : HAK_SET_COMMON;
}

static char *whole_place(const struct hak_page_request *r)
{
    if (r->set < HAK_SET_OWN)
        return best_of_set(r->set, r, SIZE_MAX);
    struct hak_page_request all = {.pages = HAK_SUPERSLAB_PAGES, .align = HAK_SUPERSLAB_PAGES};
    char *base = best_of_set(supplier_of(r), &all, SIZE_MAX);
    if (base) {
        cut_run(base, HAK_SUPERSLAB_PAGES);
        superslab_of(base)->set = r->set;
        link_run(base, HAK_SUPERSLAB_PAGES);
    }
    return base;
}

/* --- new superslabs --------------------------------------------------------------------------------------- */

static struct hak_meta_list unused_superslabs;

/* Under the lock, as the next one. */
static void recycle_superslabs(struct superslab *list)
{
    for (struct superslab *next; list; list = next) {
        next = list->next;
        hak_meta_recycle(&unused_superslabs, list);
    }
}

/* A list of new descriptors; NULL without memory for all of them. */
static struct superslab *new_superslabs(size_t count)
{
    struct superslab *list = NULL, *s;
    for (; count; count--, list = s) {
        if (!(s = hak_meta_new(&unused_superslabs, sizeof *s))) {
            recycle_superslabs(list);
            return NULL;
        }
        s->next = list;
    }
    return list;
}

/* The lock is let go of while the kernel is asked. NULL: no memory. */
static char *map(struct hak_page_request *r, size_t count, struct superslab **list)
{
    size_t align = hak_max(1, r->align / HAK_SUPERSLAB_PAGES);
    if (!(*list = new_superslabs(count)))
        return NULL;
    hak_lock_release(&hak_pages_lock);
    char *base = hak_space_alloc(count, align, supplier_of(r) == HAK_SET_HEADERS);
    if (base && r->fresh)
        r->fresh(base, count * HAK_SUPERSLAB);
    hak_lock_acquire(&hak_pages_lock);
    if (!base)
        recycle_superslabs(*list);
    return base;
}

static void add_superslabs(char *base, size_t count, struct superslab *list, unsigned set)
{
    for (size_t i = 0; i < count; i++) {
        struct superslab *s = list;
        list = s->next;
        s->next = NULL;
        s->pages.base = base + i * HAK_SUPERSLAB;
        s->free = ALL_PAGES;
        s->set = set;
        s->state = CLEARED;
        page_at(s->pages.base)->region = s;
    }
    mapped += count;
    join_run(base, count * HAK_SUPERSLAB_PAGES);
    if (hak_options.log_registry)
        hak_log("SUPER_REG register %p, %zu KiB", (void *)base, count * HAK_SUPERSLAB / HAK_KIB);
}

static char *mapped_place(struct hak_page_request *r)
{
    struct superslab *list;
    size_t least = hak_align_up(r->pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    size_t count = hak_max(least, hak_align_up(r->map_pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES);
    misses++;
    if (hak_options.log_lru)
        hak_log("LRU_POP miss, %zu cached", cached);
    char *base = map(r, count, &list);
    if (!base && count > least)
        base = map(r, count = least, &list);
    if (!base)
        return NULL;
    add_superslabs(base, count, list, supplier_of(r));
    return whole_place(r);
}

static char *find_place(struct hak_page_request *r, enum hak_pages_from from)
{
    switch (from) {
    case HAK_PAGES_DIRTY:
        return dirty_place(r);
    case HAK_PAGES_FREE:
        return best_of_set(r->set, r, r->set < HAK_SET_OWN ? HAK_SUPERSLAB_PAGES - 1 : SIZE_MAX);
    case HAK_PAGES_WHOLE:
        return whole_place(r);
    case HAK_PAGES_MAPPED:
        break;
    }
    return mapped_place(r);
}

static void vacate(char *base, size_t pages, bool is_dirty, bool slab);

/* The kernel does not open them. */
static HAK_COLD void put_refused(struct hak_page_request *r)
{
    hak_lock_acquire(&hak_pages_lock);
    vacate(r->base, r->pages, !(r->uncharged && r->zero), r->slab);
    hak_lock_release(&hak_pages_lock);
    r->base = NULL;
}

bool hak_pages_take(struct hak_page_request *r, enum hak_pages_from from)
{
    r->base = NULL;
    if (from == HAK_PAGES_DIRTY && !HAK_LOAD_RELAXED(&hak_dirty_queue.length))
        return false;
    hak_lock_acquire(&hak_pages_lock);
    r->base = find_place(r, from);
    if (r->base)
        r->zero = occupy(r->base, r->pages, r);
    hak_lock_release(&hak_pages_lock);
    if (HAK_UNLIKELY(r->base && !hak_closed_open(r->base, r->pages * HAK_PAGE)))
        put_refused(r);
    return r->base;
}

struct hak_slab *hak_pages_describe(char *base, size_t pages, bool slab)
{
    struct hak_slab *run = page_at(base);
    run->base = base;
    run->pages = (uint16_t)pages;
    run->cls = slab ? 0 : HAK_CLASS_SPAN;
    hak_space_describe(run, 0, pages);
    return run;
}

struct hak_slab *hak_pages_take_run(struct hak_page_request *r, enum hak_pages_from from)
{
    return hak_pages_take(r, from) ? hak_pages_describe(r->base, r->pages, r->slab) : NULL;
}

/* --- giving back ------------------------------------------------------------------------------------------ */

/* For hak_pages_bound, which follows. */
static void note_due(uint64_t now_ms)
{
    bool looks = check_waiting || hak_dirty_queue.at_once;
    bool due = hak_dirty_queue.waiting > hak_dirty_most() ||
               (looks && (hak_dirty_is_due(now_ms) || unwanted(SIZE_MAX, now_ms)));
    check_waiting = false;
    if (due)
        HAK_STORE_RELAXED(&hak_pages_due, true);
}

static void vacate(char *base, size_t pages, bool is_dirty, bool slab)
{
    struct part x;
    uint64_t now = hak_clock_ms();
    HAK_CHECK(!(superslab_of(base)->free >> index_of(base) & 1)); /* before it joins others */
    join_run(base, pages);
    EACH_PART(x, base, pages)
    {
        HAK_CHECK(!(x.s->free & x.bits));
        x.s->free |= x.bits;
        x.s->slabs -= slab ? x.pages : 0;
        hak_dirty_put(&x.s->pages, x.bits, is_dirty, now);
        if (x.s->free == ALL_PAGES && x.s->state == IN_USE)
            enter_cache(x.s, now);
    }
    note_due(now);
}

void hak_pages_put(struct hak_slab *run)
{
    static unsigned slabs;
    char *base = run->base;
    size_t pages = run->pages;
    bool slab = run->cls != HAK_CLASS_SPAN;
    if (hak_slab_state(run) == HAK_SLAB_EMPTY)
        hak_count_transition(HAK_SLAB_EMPTY, HAK_SLAB_UNUSED);
    hak_lock_acquire(&hak_pages_lock);
    hak_space_forget(run, 0, pages);
    check_waiting |= !slab || ++slabs % hak_options.ss_partial_interval == 0;
    vacate(base, pages, true, slab);
    hak_lock_release(&hak_pages_lock);
}

void hak_pages_put_rest(char *base, size_t pages, bool unused)
{
    hak_lock_acquire(&hak_pages_lock);
    vacate(base, pages, !unused, true);
    hak_lock_release(&hak_pages_lock);
}

static bool extend(struct hak_slab *run, size_t pages)
{
    size_t more = pages - run->pages;
    const struct hak_slab *behind = free_neighbour(run->base + (run->pages - 1) * HAK_PAGE, 1);
    if (!behind || behind->run_pages < more)
        return false;
    occupy(behind->free, more, &(struct hak_page_request){0});
    hak_space_describe(run, run->pages, pages);
    run->pages = (uint16_t)pages;
    return true;
}

bool hak_pages_resize(struct hak_slab *run, size_t pages)
{
    size_t before = run->pages;
    hak_lock_acquire(&hak_pages_lock);
    bool done = pages <= before || extend(run, pages);
    if (pages < before) {
        hak_space_forget(run, pages, before);
        run->pages = (uint16_t)pages;
        check_waiting = true;
        vacate(run->base + pages * HAK_PAGE, before - pages, true, false);
    }
    hak_lock_release(&hak_pages_lock);
    return done;
}

unsigned hak_pages_given(const char *base, size_t pages)
{
    struct part x;
    unsigned given = 0;
    hak_lock_acquire(&hak_pages_lock);
    EACH_PART(x, (char *)(uintptr_t)base, pages)
        if (x.s) /* else they are new, and somebody is about to add them */
            given += (unsigned)__builtin_popcountll(x.bits & x.s->pages.used & ~x.s->pages.purged);
    hak_lock_release(&hak_pages_lock);
    return given;
}

/* --- for the purge ----------------------------------------------------------------------------------------- */

void hak_pages_claim(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct superslab *s = (struct superslab *)d;
    cut_run(d->base + first * HAK_PAGE, pages);
    s->free &= ~hak_page_bits(first, pages);
    hak_dirty_claim(d, hak_page_bits(first, pages));
}

void hak_pages_settle(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct superslab *s = (struct superslab *)d;
    s->free |= hak_page_bits(first, pages);
    join_run(d->base + first * HAK_PAGE, pages);
    if (s->free == ALL_PAGES && s->state == IN_USE)
        enter_cache(s, hak_clock_ms());
}

struct hak_dirty *hak_pages_unwanted(size_t keep)
{
    struct superslab *s = unwanted(keep, hak_clock_ms());
    return s ? &s->pages : NULL;
}

void hak_pages_evict(struct hak_dirty *d)
{
    leave_cache((struct superslab *)d, true);
    evictions++;
}

enum hak_pages_use hak_pages_use(const struct hak_dirty *d)
{
    const struct superslab *s = (const struct superslab *)d;
    if (s->state == CACHED)
        return s->leaving ? HAK_PAGES_LEAVING : HAK_PAGES_CACHED;
    return s->slabs ? HAK_PAGES_SLABS : HAK_PAGES_SPANS;
}

/* A superslab whose pages are all free and clean, taken off its free run; NULL if there is none. */
static struct superslab *take_off(unsigned set)
{
    const struct hak_page_request all = {.pages = HAK_SUPERSLAB_PAGES, .align = HAK_SUPERSLAB_PAGES};
    for (unsigned i = length_class(HAK_SUPERSLAB_PAGES); i < LENGTHS; i++)
        for (struct hak_slab *run = free_runs[set].lists[i]; run; run = run->next) {
            char *end = (char *)run->free + run->run_pages * HAK_PAGE;
            for (char *base = place_in(run, &all); base && base + HAK_SUPERSLAB <= end; base += HAK_SUPERSLAB)
                if (!superslab_of(base)->pages.old) {
                    cut_run(base, HAK_SUPERSLAB_PAGES);
                    return superslab_of(base);
                }
        }
    return NULL;
}

static char *close_superslab(void)
{
    char *base = NULL;
    hak_lock_acquire(&hak_pages_lock);
    struct superslab *s = take_off(HAK_SET_COMMON);
    if (!s)
        s = take_off(HAK_SET_HEADERS);
    if (s) {
        base = s->pages.base;
        leave_cache(s, true);
        hak_dirty_close(&s->pages);
        page_at(base)->region = NULL;
        hak_meta_recycle(&unused_superslabs, s);
    }
    hak_lock_release(&hak_pages_lock);
    return base;
}

void hak_pages_close(void)
{
    char *base;
    while ((base = close_superslab()))
        hak_space_free(base, 1, HAK_CAUSE_trim);
}

/* --- the rest --------------------------------------------------------------------------------------------- */

struct hak_pages_count hak_pages_count(void)
{
    hak_lock_acquire(&hak_pages_lock);
    size_t dirty = hak_dirty_queue.waiting + hak_dirty_queue.refused;
    struct hak_pages_count count = {runs, dirty / HAK_PAGE, hak_dirty_queue.purged / HAK_PAGE};
    hak_lock_release(&hak_pages_lock);
    return count;
}

void hak_pages_stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&hak_pages_lock);
    hak_stats_begin(w, "lru");
    hak_stats_number(w, "cached", cached);
    hak_stats_number(w, "cached_bytes", cached * HAK_SUPERSLAB);
    hak_stats_number(w, "pushes", pushes);
    hak_stats_number(w, "hits", hits);
    hak_stats_number(w, "misses", misses);
    hak_stats_number(w, "evictions", evictions);
    hak_stats_end(w);
    hak_stats_begin(w, "page_heap");
    hak_stats_number(w, "superslabs_mapped", mapped);
    hak_stats_number(w, "dirty_bytes", hak_dirty_queue.waiting + hak_dirty_queue.refused);
    hak_stats_number(w, "refused_bytes", hak_dirty_queue.refused);
    hak_stats_number(w, "lock_taken", HAK_LOAD_RELAXED(&hak_pages_lock.taken));
    hak_stats_end(w);
    hak_lock_release(&hak_pages_lock);
}
