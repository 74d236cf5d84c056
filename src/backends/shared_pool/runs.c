/* SPDX-License-Identifier: MIT
 * See runs.h. The descriptor of an EMPTY slab stays as it is while all its pages are free and dirty: whoever takes or
 * purges one of them dissolves it first. */
#include "runs.h"

#include "core/plugin.h"
#include "lru.h"

static uint64_t empties;
static bool check; /* something was put that makes it worth a look at what waits */

/* --- descriptors ------------------------------------------------------------------------------------ */

static unsigned index_in(const struct superslab *s, const struct hak_slab *slab)
{
    return (unsigned)((size_t)(slab->base - s->pages.base) / HAK_PAGE);
}

/* Makes the descriptors of a run say that it is one. */
static struct hak_slab *describe(struct superslab *s, char *base, size_t pages)
{
    struct hak_slab *slab = hak_space_run(base, pages);
    slab->region = s;
    return slab;
}

/* --- EMPTY slabs ------------------------------------------------------------------------------------ */

/* An EMPTY slab stops being one: its pages stay free and dirty. */
static void dissolve(struct hak_slab *slab, enum hak_slab_state to)
{
    hak_count_transition(HAK_SLAB_EMPTY, to);
    hak_space_forget(slab, 0, slab->pages);
}

/* The EMPTY slabs in these pages of a superslab. */
static void dissolve_pages(const struct superslab *s, uint64_t pages, enum hak_slab_state to)
{
    for (pages &= s->bits[HAK_DIRTY_OLD]; pages; pages &= pages - 1) {
        struct hak_slab *slab = hak_space_slab(s->pages.base + (size_t)__builtin_ctzll(pages) * HAK_PAGE);
        if (slab && slab->region == s && hak_slab_state(slab) == HAK_SLAB_EMPTY)
            dissolve(slab, to);
    }
}

/* The account is the superslab's first member. */
static struct superslab *superslab_of(const struct hak_dirty *pages)
{
    return (struct superslab *)(uintptr_t)pages;
}

struct search {
    unsigned cls, pages, left;
    struct hak_slab *similar; /* of another class */
};

/* A dirty run begins with page i: the next one begins behind the result. */
static uint64_t look_at(struct search *f, const struct superslab *s, unsigned i, struct hak_slab **found)
{
    struct hak_slab *slab = hak_space_page(s->pages.base + (size_t)i * HAK_PAGE);
    if (!slab->base || hak_slab_state(slab) != HAK_SLAB_EMPTY)
        return superslab_run(i, 1);
    if (slab->pages == f->pages)
        *(slab->cls == f->cls ? found : &f->similar) = slab;
    return superslab_run(i, slab->pages);
}

static struct hak_slab *find_in(struct search *f, const struct superslab *s)
{
    struct hak_slab *found = NULL;
    for (uint64_t pages = s->bits[HAK_DIRTY_OLD]; pages && f->left && !found; f->left--)
        pages &= ~look_at(f, s, (unsigned)__builtin_ctzll(pages), &found);
    return found;
}

/* One of the class among so many in the superslabs that became dirty last; else one of the same length. */
static struct hak_slab *find_empty(unsigned cls, unsigned pages, bool header)
{
    struct search f = {.cls = cls, .pages = pages, .left = hak_options.empty_scan_limit};
    struct hak_slab *found = NULL;
    for (const struct hak_dirty *d = hak_pool_dirty.last; d && f.left && !found; d = d->prev) {
        const struct superslab *s = superslab_of(d);
        if (s->count == 1 && !s->cached && hak_tag_in_header_zone(d->base) == header)
            found = find_in(&f, s);
        else
            f.left--;
    }
    return found ? found : f.similar;
}

/* --- taking ----------------------------------------------------------------------------------------- */

struct hak_slab *hak_runs_take(struct superslab *s, unsigned pages, bool lent, bool *zero)
{
    unsigned first = hak_superslab_fit(s, pages);
    dissolve_pages(s, superslab_run(first, pages), HAK_SLAB_UNUSED);
    return hak_superslab_take_at(s, first, pages, lent, zero) ? describe(s, s->pages.base + first * HAK_PAGE, pages)
                                                              : NULL;
}

struct hak_slab *hak_runs_take_whole(struct superslab *s, size_t pages, bool *zero)
{
    *zero = hak_superslab_take_whole(s);
    return describe(s, s->pages.base, pages);
}

struct hak_slab *hak_runs_take_empty(unsigned cls, unsigned pages, bool header)
{
    struct hak_slab *slab = find_empty(cls, pages, header);
    if (slab) {
        struct superslab *s = slab->region;
        bool zero;
        HAK_CHECK(hak_superslab_take_at(s, index_in(s, slab), slab->pages, false, &zero));
    }
    return slab;
}

/* --- putting back ------------------------------------------------------------------------------------ */

static void cache_if_free(struct superslab *s)
{
    if (s->free != ALL_PAGES)
        return;
    if (s->count == 1)
        dissolve_pages(s, ALL_PAGES, HAK_SLAB_UNUSED);
    hak_superslab_withdraw(s);
    check = true;
    if (hak_options.log_free)
        hak_log("SS_FREE superslab %p is wholly empty", (void *)s->pages.base);
    hak_lru_push(s);
}

static void note_empty(const struct hak_slab *slab)
{
    const struct hak_option_values *o = &hak_options;
    if (HAK_UNLIKELY(o->log_free))
        hak_log("EMPTY slab %p of %u-byte blocks", (void *)slab->base, slab->stride);
    if (++empties % o->ss_partial_interval == 0 || hak_parts.release->at_once)
        check = true;
}

void hak_runs_put_empty(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    hak_superslab_put(s, index_in(s, slab), slab->pages, true);
    note_empty(slab);
    cache_if_free(s);
}

void hak_runs_put(struct hak_slab *slab)
{
    struct superslab *s = slab->region;
    unsigned first = index_in(s, slab), pages = slab->pages;
    bool dirty = hak_slab_state(slab) != HAK_SLAB_RETURNED;
    hak_space_forget(slab, 0, pages);
    check = true;
    if (s->whole) {
        hak_superslab_put_whole(s, dirty);
        hak_lru_push(s);
    } else {
        hak_superslab_put(s, first, pages, dirty);
        cache_if_free(s);
    }
}

/* --- pages back to the kernel ------------------------------------------------------------------------ */

static bool claim(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct superslab *s = superslab_of(d);
    if (s->count == 1)
        dissolve_pages(s, superslab_run(first, pages), HAK_SLAB_RETURNED);
    hak_superslab_hide(s, superslab_run(first, pages));
    return true;
}

static void settle(struct hak_dirty *d, unsigned first, unsigned pages)
{
    struct superslab *s = superslab_of(d);
    hak_superslab_show(s, superslab_run(first, pages));
    if (!s->cached)
        cache_if_free(s);
}

static enum hak_cause cause_of(const struct hak_dirty *d)
{
    if (superslab_of(d)->cached)
        return hak_parts.release->cause;
    return hak_options.ss_partial ? HAK_CAUSE_partial_release : HAK_PURGE_NOT_NOW;
}

static HAK_LOCK(purging, HAK_RANK_PURGE);

struct hak_purger hak_runs_purger = {
    .queue = &hak_pool_dirty,
    .lock = &hak_pool_lock,
    .purging = &purging,
    .claim = claim,
    .settle = settle,
    .cause = cause_of,
};

/* The next superslab beyond the limits: a clean one leaves the cache, a dirty one is the caller's to purge. NULL: none.
 */
static struct superslab *evict_clean(size_t keep, enum hak_cause cause, bool *clean)
{
    hak_lock_acquire(&hak_pool_lock);
    struct superslab *s = hak_lru_unwanted(keep);
    *clean = s && !s->pages.dirty;
    if (*clean)
        hak_lru_evict(s, cause);
    hak_lock_release(&hak_pool_lock);
    return s;
}

bool hak_runs_evict(size_t keep, enum hak_cause cause, uint64_t end_ns)
{
    struct superslab *s;
    bool clean, over = false;
    if (!hak_purge_enter(&hak_runs_purger, cause == HAK_CAUSE_trim))
        return false;
    while (!over && (s = evict_clean(keep, cause, &clean))) {
        if (!clean)
            hak_purge_region(&hak_runs_purger, &s->pages, cause);
        over = hak_os->clock_ns() >= end_ns || (cause != HAK_CAUSE_trim && hak_lock_is_fork_waiting());
    }
    hak_purge_leave(&hak_runs_purger);
    return over;
}

bool hak_runs_exceed(void)
{
    bool due = check && (hak_purge_is_due(&hak_runs_purger) || hak_lru_unwanted(SIZE_MAX));
    check = false;
    return due;
}

void hak_runs_bound(void)
{
    hak_purge_due(&hak_runs_purger, SIZE_MAX);
    hak_runs_evict(SIZE_MAX, HAK_CAUSE_lru_evict, UINT64_MAX);
}

uint64_t hak_runs_empties(void)
{
    return empties;
}
