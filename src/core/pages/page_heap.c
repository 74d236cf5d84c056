/* SPDX-License-Identifier: MIT
 * See page_heap.h. This file maps and unmaps superslabs, and takes and puts back their pages. free_runs.c knows which
 * free pages are adjacent, dirty.c which of them are dirty. */
#include "page_heap.h"

#include <sys/mman.h>

#include "budget.h"
#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/sealed.h"
#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/os/meta.h"
#include "core/pages/closed.h"
#include "free_runs.h"

HAK_LOCK(hak_pages_lock, HAK_RANK_PAGES);

static struct hak_superslab *newest, *oldest; /* the newest and the oldest superslab of the cache */
static size_t cached;
static uint64_t pushes, hits, misses, evictions, mapped;
static _Atomic(bool) advises; /* some superslab was, or is to be, advised for its set */
static bool check_waiting;    /* the pages may have made a purge due */
_Atomic(bool) hak_pages_due;
_Atomic(size_t) hak_pages_room, hak_pages_room_soon;

/* The pages of a run that lie in one superslab. */
struct part {
    struct hak_superslab *s;
    unsigned first, pages;
    uint64_t bits;
};

HAK_INLINE struct part part_of(char *base, size_t pages)
{
    unsigned first = hak_page_index(base), n = (unsigned)hak_min(pages, HAK_SUPERSLAB_PAGES - first);
    return (struct part){hak_superslab_of(base), first, n, hak_page_bits(first, n)};
}

#define EACH_PART(x, base, count)                             \
    for (size_t done_ = 0; done_ < (count); done_ += x.pages) \
        for (bool once_ = (x = part_of((base) + done_ * HAK_PAGE, (count)-done_), true); once_; once_ = false)

/* Pages become free, or cease to be. */
HAK_INLINE void set_free_pages(struct hak_superslab *s, uint64_t pages, bool free)
{
    bool was_whole = s->free == HAK_ALL_PAGES;
    s->free = free ? s->free | pages : s->free & ~pages;
    if (HAK_UNLIKELY(was_whole != (s->free == HAK_ALL_PAGES)))
        hak_free_runs_note_whole(s, !was_whole);
}

/* --- the cache of superslabs that are wholly free --------------------------------------------------------- */

static void leave_cache(struct hak_superslab *s, bool evicted)
{
    if (s->state == HAK_CACHED) {
        HAK_QUEUE_REMOVE(&oldest, &newest, s);
        cached--;
        s->leaving = false;
        if (hak_options.log_lru)
            hak_log("%s %p, %zu cached", evicted ? "LRU_EVICT" : "LRU_POP hit", (void *)s->pages.base, cached);
    }
    s->state = evicted ? HAK_CLEARED : HAK_IN_USE;
}

/* All its pages are free. */
static void move_to_set(struct hak_superslab *s, unsigned set)
{
    hak_free_runs_cut(hak_free_runs_at(s->pages.base), HAK_SUPERSLAB_PAGES);
    s->set = set;
    hak_free_runs_note_whole(s, true);
    hak_free_runs_join(s->pages.base, HAK_SUPERSLAB_PAGES);
}

/* All pages of the superslab are free. If one class had it, any class may have it from now on, and it leaves first.
 * While the kernel refuses some of its pages, it is in no cache, since it could not leave it. */
static void enter_cache(struct hak_superslab *s, uint64_t now_ms)
{
    bool own = s->set >= HAK_SET_OWN;
    if (s->state != HAK_IN_USE)
        return;
    if (hak_options.log_free)
        hak_log("SS_FREE superslab %p is wholly empty", (void *)s->pages.base);
    if (own)
        move_to_set(s, hak_tag_in_header_zone(s->pages.base) ? HAK_SET_HEADERS : HAK_SET_COMMON);
    if (s->pages.refused)
        return;
    s->leaving = own;
    if (HAK_UNLIKELY(hak_huge_page_is_on()))
        hak_dirty_soil(&s->pages, HAK_ALL_PAGES);
    s->state = HAK_CACHED;
    s->cached_ms = now_ms;
    if (s->leaving)
        HAK_QUEUE_ADD_FIRST(&oldest, &newest, s);
    else
        HAK_QUEUE_ADD(&oldest, &newest, s);
    cached++;
    pushes++;
    check_waiting = true;
    if (hak_options.log_lru)
        hak_log("LRU_PUSH %p, %zu cached", (void *)s->pages.base, cached);
}

static bool is_unwanted(const struct hak_superslab *s, size_t keep, uint64_t now_ms)
{
    const struct hak_option_values *o = &hak_options;
    return cached > o->lru_max_cached || cached * HAK_SUPERSLAB > hak_min(keep, o->lru_max_mb * HAK_MIB) ||
           hak_clock_age(s->cached_ms, now_ms) > o->lru_ttl_sec * (uint64_t)1000;
}

/* Skips those, a batch at most, whose pages a purge has claimed. */
struct hak_superslab *hak_pages_unwanted(size_t keep, uint64_t now_ms)
{
    struct hak_superslab *s = oldest;
    while (s && s->free != HAK_ALL_PAGES)
        s = s->next;
    return s && (s->leaving || is_unwanted(s, keep, now_ms)) ? s : NULL;
}

/* --- taking --------------------------------------------------------------------------------------------- */

static void tell_old(uint64_t *words, size_t first, uint64_t old, size_t pages)
{
    for (size_t i = first; i < first + pages; i++, old >>= 1)
        words[i / 64] = (words[i / 64] & ~((uint64_t)1 << i % 64)) | (old & 1) << i % 64;
}

/* Takes free pages. True: they all read as zero. */
static bool occupy(struct hak_place at, size_t pages, struct hak_page_request *r)
{
    struct part x;
    bool zero = true;
    hak_free_runs_cut(at, pages);
    EACH_PART(x, at.base, pages)
    {
        if (r->old)
            tell_old(r->old, done_, hak_dirty_old(&x.s->pages) >> x.first, x.pages);
        hits += x.s->state == HAK_CACHED;
        leave_cache(x.s, false);
        set_free_pages(x.s, x.bits, false);
        x.s->slabs += r->slab ? x.pages : 0;
        r->purged |= x.s->pages.purged & x.bits;
        zero &= hak_dirty_take(&x.s->pages, x.bits);
    }
    return zero;
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

static struct hak_place dirty_place(const struct hak_page_request *r)
{
    unsigned left = r->pages <= HAK_SUPERSLAB_PAGES ? hak_options.empty_scan_limit : 0;
    for (unsigned i = 0; i < HAK_DIRTY_LISTS; i++)
        for (const struct hak_dirty *d = hak_dirty_queue.lists[i].last; d && left; d = d->prev, left--) {
            const struct hak_superslab *s = (const struct hak_superslab *)d;
            uint64_t starts = s->set == r->set ? run_starts(s->free & s->pages.old, r->pages) : 0;
            if (starts)
                return hak_free_runs_at(s->pages.base + (size_t)__builtin_ctzll(starts) * HAK_PAGE);
        }
    return (struct hak_place){0};
}

/* The set from which a class gets its superslabs. */
static unsigned supplier_of(const struct hak_page_request *r)
{
    return r->set < HAK_SET_OWN ? r->set : r->header ? HAK_SET_HEADERS : HAK_SET_COMMON;
}

/* A place in a run of at most `most` pages. */
static struct hak_place fitting_place(const struct hak_page_request *r, size_t most)
{
    struct hak_fit fit = {.pages = r->roomy ? 3 * r->pages : r->pages, .align = r->align, .most = most};
    struct hak_place at = hak_free_runs_best(r->set, fit);
    if (at.base && r->roomy)
        at.base += r->pages * HAK_PAGE; /* the block before this one may grow, too */
    if (at.base || !r->roomy)
        return at;
    fit.pages = r->pages;
    return hak_free_runs_best(r->set, fit);
}

/* A place of the requested length, else of the least acceptable one. */
static struct hak_place shared_place(struct hak_page_request *r)
{
    size_t pages = r->pages;
    struct hak_place at = fitting_place(r, SIZE_MAX);
    if (at.base || !r->least || r->least == pages)
        return at;
    r->pages = r->least;
    at = fitting_place(r, SIZE_MAX);
    if (!at.base)
        r->pages = pages;
    return at;
}

static struct hak_place whole_place(struct hak_page_request *r)
{
    if (r->set < HAK_SET_OWN)
        return shared_place(r);
    const struct hak_fit all = {.pages = HAK_SUPERSLAB_PAGES, .align = HAK_SUPERSLAB_PAGES, .most = SIZE_MAX};
    struct hak_place at = hak_free_runs_best(supplier_of(r), all);
    if (!at.base)
        return at;
    move_to_set(hak_superslab_of(at.base), r->set);
    if (hak_advice_of_set(r->set))
        HAK_STORE_RELAXED(&advises, true);
    return hak_free_runs_at(at.base);
}

/* --- new superslabs --------------------------------------------------------------------------------------- */

static struct hak_meta_list unused_superslabs;

/* The caller holds the lock, here and in the next function. */
static void recycle_superslabs(struct hak_superslab *list)
{
    for (struct hak_superslab *next; list; list = next) {
        next = list->next;
        hak_meta_recycle(&unused_superslabs, list);
    }
}

/* A list of new descriptors; NULL without memory for all of them. */
static struct hak_superslab *new_superslabs(size_t count)
{
    struct hak_superslab *list = NULL, *s;
    for (; count; count--, list = s) {
        if (!(s = hak_meta_new(&unused_superslabs, sizeof *s))) {
            recycle_superslabs(list);
            return NULL;
        }
        s->next = list;
    }
    return list;
}

/* Releases the lock during the system calls. NULL: no memory. */
static char *map(struct hak_page_request *r, size_t *count, size_t least, struct hak_superslab **list)
{
    size_t align = hak_max(1, r->align / HAK_SUPERSLAB_PAGES), wanted = *count;
    if (!(*list = new_superslabs(wanted)))
        return NULL;
    hak_lock_release(&hak_pages_lock);
    char *base = hak_space_alloc_most(count, least, align, supplier_of(r) == HAK_SET_HEADERS);
    if (base && r->fresh)
        r->fresh(base, *count * HAK_SUPERSLAB);
    hak_lock_acquire(&hak_pages_lock);
    for (size_t left = base ? wanted - *count : wanted; left; left--) {
        struct hak_superslab *s = *list;
        *list = s->next;
        hak_meta_recycle(&unused_superslabs, s);
    }
    return base;
}

static void add_superslabs(char *base, size_t count, struct hak_superslab *list, unsigned set)
{
    for (size_t i = 0; i < count; i++) {
        struct hak_superslab *s = list;
        list = s->next;
        s->next = NULL;
        s->pages.base = base + i * HAK_SUPERSLAB;
        s->set = set;
        set_free_pages(s, HAK_ALL_PAGES, true);
        s->state = HAK_CLEARED;
        hak_page_at(s->pages.base)->region = s;
    }
    mapped += count;
    hak_free_runs_join(base, count * HAK_SUPERSLAB_PAGES);
    if (hak_options.log_registry)
        hak_log("SUPER_REG register %p, %zu KiB", (void *)base, count * HAK_SUPERSLAB / HAK_KIB);
}

static struct hak_place mapped_place(struct hak_page_request *r)
{
    struct hak_superslab *list;
    size_t least = hak_align_up(r->pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    size_t wanted = r->map_pages ? r->map_pages(r) : 0;
    size_t count = hak_max(least, hak_align_up(wanted, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES);
    misses++;
    if (hak_options.log_lru)
        hak_log("LRU_POP miss, %zu cached", cached);
    char *base = map(r, &count, least, &list);
    if (!base && count > least) {
        count = least;
        base = map(r, &count, least, &list);
    }
    if (!base)
        return (struct hak_place){0};
    add_superslabs(base, count, list, supplier_of(r));
    return whole_place(r);
}

static struct hak_place find_place(struct hak_page_request *r, enum hak_pages_from from)
{
    switch (from) {
    case HAK_PAGES_DIRTY:
        return dirty_place(r);
    case HAK_PAGES_FREE:
        return fitting_place(r, HAK_SUPERSLAB_PAGES - 1);
    case HAK_PAGES_WHOLE:
        return whole_place(r);
    case HAK_PAGES_MAPPED:
        break;
    }
    return mapped_place(r);
}

static void vacate(char *base, size_t pages, bool slab);

/* --- advice ------------------------------------------------------------------------------------------------ */

bool hak_pages_advise(char *base, size_t bytes, unsigned before, unsigned advice)
{
    unsigned gone = before & ~advice, more = advice & ~before;
    if (more & HAK_ADVICE_NO_DUMP && hak_os_advise(base, bytes, MADV_DONTDUMP, HAK_CAUSE_superslab_map))
        return false;
    if (gone & HAK_ADVICE_NO_DUMP) /* refused, it stays out of dumps */
        hak_os_advise(base, bytes, MADV_DODUMP, HAK_CAUSE_superslab_map);
    if ((gone | more) & (HAK_ADVICE_HUGE | HAK_ADVICE_SMALL))
        hak_huge_page_request(base, bytes, advice & HAK_ADVICE_HUGE ? 1 : advice & HAK_ADVICE_SMALL ? -1 : 0);
    return true;
}

/* The caller holds pages of it, so it stays in its set. */
static bool advise_superslab(struct hak_superslab *s)
{
    unsigned before = HAK_LOAD_ACQUIRE(&s->advice), advice = hak_advice_of_set(s->set);
    if (before == advice)
        return true;
    bool done = hak_pages_advise(s->pages.base, HAK_SUPERSLAB, before, advice);
    if (done)
        HAK_STORE_RELEASE(&s->advice, (uint8_t)advice);
    return done;
}

/* Where mappings are closed page by page, advice would get lost: there its users repeat it (arena.c). */
static HAK_COLD bool advise_superslabs(char *base, size_t pages)
{
    bool done = true;
    struct part x;
    if (hak_limit_is_tight)
        return true;
    EACH_PART(x, base, pages)
    done &= advise_superslab(x.s);
    return done;
}

#define SOON_PAGES 65u
static size_t may_wait; /* the allowance of the last free */

static void note_room(void)
{
    bool waits = !hak_dirty_queue.at_once && hak_options.ace_cache_mb;
    size_t room = waits ? (may_wait - hak_min(may_wait, hak_dirty_queue.waiting)) / HAK_PAGE : 0;
    HAK_STORE_RELAXED(&hak_pages_room, room);
    HAK_STORE_RELAXED(&hak_pages_room_soon, hak_min(room, SOON_PAGES));
}

/* The kernel refused to make the pages accessible, or the advice. */
static HAK_COLD void put_refused(struct hak_page_request *r)
{
    hak_lock_acquire(&hak_pages_lock);
    vacate(r->base, r->pages, r->slab);
    hak_lock_release(&hak_pages_lock);
    r->base = NULL;
}

bool hak_pages_take(struct hak_page_request *r, enum hak_pages_from from)
{
    struct hak_place at = {0};
    enum hak_pages_from last = (enum hak_pages_from)hak_max(from, r->until);
    r->base = NULL;
    r->purged = false;
    if (last == HAK_PAGES_DIRTY && !hak_dirty_length())
        return false;
    hak_lock_acquire(&hak_pages_lock);
    for (; !at.base && from <= last; from++)
        at = find_place(r, r->from = from);
    if (at.base) {
        r->zero = occupy(at, r->pages, r);
        note_room();
    }
    hak_lock_release(&hak_pages_lock);
    r->base = at.base;
    bool refused = r->base && HAK_LOAD_RELAXED(&advises) && !advise_superslabs(r->base, r->pages);
    if (HAK_UNLIKELY(refused || (r->base && !hak_closed_open(r->base, r->pages * HAK_PAGE))))
        put_refused(r);
    return r->base;
}

struct hak_slab *hak_pages_describe(char *base, size_t pages, bool slab)
{
    struct hak_slab *run = hak_page_at(base);
    run->base = base;
    run->pages = (uint16_t)pages;
    run->cls = slab ? 0 : HAK_CLASS_SPAN;
    run->head_offset = 0;
    for (size_t i = 1; slab && i < pages; i++)
        run[i].head_offset = (uint16_t)i;
    return run;
}

struct hak_slab *hak_pages_take_run(struct hak_page_request *r, enum hak_pages_from from)
{
    return hak_pages_take(r, from) ? hak_pages_describe(r->base, r->pages, r->slab) : NULL;
}

/* --- putting back ------------------------------------------------------------------------------------------ */

/* Tells hak_pages_bound, which runs without the lock, that a purge is due. */
static void note_due(uint64_t now_ms)
{
    may_wait = hak_dirty_allowance(now_ms);
    note_room();
    bool looks = check_waiting || hak_dirty_queue.at_once;
    bool due = hak_dirty_queue.waiting > hak_dirty_most() ||
               (looks && (hak_dirty_is_due(now_ms) || hak_pages_unwanted(SIZE_MAX, now_ms)));
    check_waiting = false;
    if (due)
        HAK_STORE_RELAXED(&hak_pages_due, true);
}

static void vacate(char *base, size_t pages, bool slab)
{
    struct part x;
    uint64_t now = hak_clock_ms();
    HAK_CHECK(!(hak_superslab_of(base)->free >> hak_page_index(base) & 1)); /* read before the pages are merged */
    hak_free_runs_join(base, pages);
    EACH_PART(x, base, pages)
    {
        HAK_CHECK(!(x.s->free & x.bits));
        set_free_pages(x.s, x.bits, true);
        x.s->slabs -= slab ? x.pages : 0;
        if (HAK_UNLIKELY(pages * HAK_PAGE >= HAK_HUGE_PAGE && HAK_LOAD_RELAXED(&x.s->pages.torn)))
            hak_dirty_forget_torn(&x.s->pages);
        hak_dirty_put(&x.s->pages, x.bits, now);
        if (x.s->free == HAK_ALL_PAGES)
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
    run->base = NULL; /* its pages lead to no slab now */
    HAK_STORE_RELAXED(&run->word, HAK_SLAB_UNUSED);
    check_waiting |= !slab || ++slabs % hak_options.ss_partial_interval == 0;
    vacate(base, pages, slab);
    hak_lock_release(&hak_pages_lock);
}

static bool extend(struct hak_slab *run, size_t pages)
{
    size_t before = run->pages, more = pages - before;
    struct hak_slab *behind = hak_free_runs_behind(run->base, before);
    if (!behind || behind->run_pages < more)
        return false;
    occupy((struct hak_place){behind, behind->free}, more, &(struct hak_page_request){0});
    run->pages = (uint16_t)pages;
    return true;
}

bool hak_pages_resize(struct hak_slab *run, size_t pages)
{
    size_t before = run->pages;
    hak_lock_acquire(&hak_pages_lock);
    bool done = pages <= before || extend(run, pages);
    if (pages < before) {
        run->pages = (uint16_t)pages;
        check_waiting = true;
        vacate(run->base + pages * HAK_PAGE, before - pages, false);
    }
    hak_lock_release(&hak_pages_lock);
    if (HAK_UNLIKELY(done && HAK_LOAD_RELAXED(&advises)))
        advise_superslabs(run->base, pages);
    return done;
}

unsigned hak_pages_given(const char *base, size_t pages)
{
    struct part x;
    unsigned given = 0;
    hak_lock_acquire(&hak_pages_lock);
    EACH_PART(x, (char *)(uintptr_t)base, pages)
    if (x.s) /* otherwise the pages are new, and another thread is about to add them */
        given += (unsigned)__builtin_popcountll(x.bits & x.s->pages.used & ~x.s->pages.purged);
    hak_lock_release(&hak_pages_lock);
    return given;
}

/* --- for the purge ----------------------------------------------------------------------------------------- */

void hak_pages_claim(struct hak_superslab *s, unsigned first, unsigned pages)
{
    hak_free_runs_cut(hak_free_runs_at(s->pages.base + first * HAK_PAGE), pages);
    set_free_pages(s, hak_page_bits(first, pages), false);
    hak_dirty_claim(&s->pages, hak_page_bits(first, pages));
}

void hak_pages_settle(struct hak_superslab *s, unsigned first, unsigned pages)
{
    set_free_pages(s, hak_page_bits(first, pages), true);
    hak_free_runs_join(s->pages.base + first * HAK_PAGE, pages);
    if (s->pages.refused)
        leave_cache(s, false);
    if (s->free == HAK_ALL_PAGES)
        enter_cache(s, hak_clock_ms());
}

static void soil(char *base)
{
    hak_lock_acquire(&hak_pages_lock);
    struct hak_superslab *s = hak_page_at(base)->region;
    if (s)
        hak_dirty_soil(&s->pages, s->free);
    hak_lock_release(&hak_pages_lock);
}

HAK_COLD void hak_pages_soil(void)
{
    hak_space_each_superslab(soil);
}

void hak_pages_evict(struct hak_superslab *s)
{
    leave_cache(s, true);
    evictions++;
}

static void close_superslab(char *base)
{
    hak_lock_acquire(&hak_pages_lock);
    struct hak_superslab *s = hak_page_at(base)->region;
    bool closes = s && s->free == HAK_ALL_PAGES && !s->pages.old && s->set < HAK_SET_OWN;
    unsigned advice = closes ? HAK_LOAD_RELAXED(&s->advice) : HAK_ADVICE_NONE;
    if (closes) {
        hak_free_runs_cut(hak_free_runs_at(base), HAK_SUPERSLAB_PAGES);
        leave_cache(s, true);
        set_free_pages(s, HAK_ALL_PAGES, false);
        hak_dirty_close(&s->pages);
        hak_page_at(base)->region = NULL;
        hak_meta_recycle(&unused_superslabs, s);
    }
    hak_lock_release(&hak_pages_lock);
    hak_pages_advise(base, HAK_SUPERSLAB, advice, HAK_ADVICE_NONE);
    if (closes && hak_closed_open(base, HAK_SUPERSLAB)) /* as a new superslab is */
        hak_space_free(base, 1, HAK_CAUSE_trim);
}

void hak_pages_close(void)
{
    hak_space_each_superslab(close_superslab);
}

/* --- the rest --------------------------------------------------------------------------------------------- */

struct hak_pages_count hak_pages_count(void)
{
    hak_lock_acquire(&hak_pages_lock);
    size_t dirty = hak_dirty_queue.waiting + hak_dirty_queue.refused;
    struct hak_pages_count count = {hak_free_runs_count(), dirty / HAK_PAGE, hak_dirty_queue.purged / HAK_PAGE};
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
