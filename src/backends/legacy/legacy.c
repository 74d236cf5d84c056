/* SPDX-License-Identifier: MIT
 * The plain reference backend: one class in a superslab, one mutex, no caches and no cleverness. A slab comes
 * from the first superslab of its class that has one free; a superslab that is wholly free goes back at once,
 * free slabs of the others after the purge delay.
 * Differential tests use it as the oracle, and comparisons as the B of their A/B. */
#include "core/base/list.h"
#include "core/plugin.h"
#include "core/parts/purge.h"

struct superslab {
    struct hak_dirty slabs; /* first: an account leads to its superslab. A unit is a slab, or a part of a run */
    uint64_t bits[HAK_DIRTY_WORDS(64)];
    uint64_t used; /* bit i: slab i is taken, or claimed by a purge */
    unsigned class, capacity; /* capacity 0: a superslab lent as a whole */
    enum { KNOWN, LEAVING, LEFT } state; /* LEAVING: wholly free, its pages go; LEFT: the kernel did not take all */
    size_t count; /* superslabs, for a run */
    struct superslab *next, *prev;
};

static HAK_LOCK(lock, HAK_RANK_BACKEND);
static HAK_LOCK(purging, HAK_RANK_PURGE);
/* All superslabs of a class; beyond the bins, runs of n pages are the class HAK_NCLASSES + n. */
#define NLISTS (HAK_NCLASSES + HAK_SUPERSLAB_PAGES)
static struct superslab *lists[NLISTS];
static struct hak_meta_list recycled;
static struct hak_slab *partial_lists[HAK_NCLASSES];
static uint64_t unmaps;

enum { STAGE_PARTIAL, STAGE_UNUSED, STAGE_MAP };
static const struct hak_stage stages[] = {
    [STAGE_PARTIAL] = {"partial", true, "a PARTIAL slab of its class, which is adopted"},
    [STAGE_UNUSED] = {"unused", true, "a free slab of a superslab of its class"},
    [STAGE_MAP] = {"map", true, "a new superslab"},
    {0},
};
static struct hak_dirty_queue dirty = {.unwanted_per_ms = HAK_DIRTY_UNWANTED_PER_MS};
static struct superslab *leaving; /* wholly free: they go when the lock is let go of */

static uint64_t slab_bits(unsigned first, unsigned slabs)
{
    return (~(uint64_t)0 >> (64 - slabs)) << first;
}

/* A superslab whose account has so many units of so many bytes. */
static struct superslab *map_region(size_t count, size_t align, bool header, unsigned units, size_t unit)
{
    struct superslab *s = hak_meta_new(&recycled, sizeof *s);
    char *base = s ? hak_space_alloc(count, align, header) : NULL;
    if (!base) {
        if (s)
            hak_meta_recycle(&recycled, s);
        return NULL;
    }
    s->count = count;
    hak_dirty_open(&s->slabs, &dirty, base, units, unit, s->bits, true);
    hak_count_stage(STAGE_MAP);
    return s;
}

static struct hak_slab *describe(struct superslab *s, char *base, size_t pages)
{
    struct hak_slab *slab = hak_space_run(base, pages);
    slab->region = s;
    return slab;
}

static struct superslab *with_free_slab(unsigned class, unsigned slab_pages, bool header)
{
    for (struct superslab *s = lists[class]; s; s = s->next)
        if ((unsigned)__builtin_popcountll(s->used) < s->capacity)
            return s;
    unsigned capacity = (unsigned)(HAK_SUPERSLAB_PAGES / slab_pages);
    struct superslab *s = map_region(1, 1, header, capacity, slab_pages * HAK_PAGE);
    if (!s)
        return NULL;
    s->class = class;
    s->capacity = capacity;
    HAK_LIST_PUSH(&lists[class], s);
    return s;
}

static struct hak_slab *take_slab(unsigned class, unsigned slab_pages, bool header, bool lent, bool *zero)
{
    struct superslab *s = with_free_slab(class, slab_pages, header);
    if (!s)
        return NULL;
    unsigned i = (unsigned)__builtin_ctzll(~s->used);
    struct hak_slab *slab = describe(s, s->slabs.base + i * s->slabs.unit, slab_pages);
    s->used |= (uint64_t)1 << i;
    *zero = hak_dirty_take(&s->slabs, i, 1, lent);
    hak_count_stage(STAGE_UNUSED);
    return slab;
}

static struct hak_slab *take_partial(struct hak_thread *t, unsigned cls)
{
    struct hak_slab *slab = partial_lists[cls];
    if (!slab)
        return NULL;
    hak_slab_list_remove(&partial_lists[cls], slab);
    hak_slab_adopt(slab, t);
    hak_count_stage(STAGE_PARTIAL);
    return slab;
}

static struct hak_slab *take_fresh(struct hak_thread *t, unsigned cls)
{
    bool header = hak_parts_has_header(cls), zero;
    struct hak_slab *slab = take_slab(cls, hak_slab_pages[cls], header, false, &zero);
    if (!slab && header) /* their zone is full: blocks without headers serve as well */
        slab = take_slab(cls, hak_slab_pages[cls], false, false, &zero);
    if (slab)
        hak_slab_format(slab, cls, t);
    return slab;
}

static struct hak_slab *acquire_slab(struct hak_thread *t, unsigned cls)
{
    hak_lock_acquire(&lock);
    struct hak_slab *slab = take_partial(t, cls);
    if (!slab)
        slab = take_fresh(t, cls);
    hak_lock_release(&lock);
    return slab;
}

static struct hak_slab *adopt(struct hak_thread *t, unsigned cls)
{
    hak_lock_acquire(&lock);
    struct hak_slab *slab = take_partial(t, cls);
    hak_lock_release(&lock);
    return slab;
}

static struct hak_slab *acquire_region(size_t pages, size_t align, bool *zero)
{
    size_t count = hak_align_up(pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    struct superslab *s = map_region(count, hak_max(1, align / HAK_SUPERSLAB_PAGES), false, HAK_SUPERSLAB_PAGES,
                                     count * HAK_PAGE);
    if (!s)
        return NULL;
    s->used = slab_bits(0, HAK_SUPERSLAB_PAGES);
    *zero = hak_dirty_take(&s->slabs, 0, HAK_SUPERSLAB_PAGES, true);
    return describe(s, s->slabs.base, pages);
}

static struct hak_slab *acquire_run(size_t pages, size_t align, bool *zero)
{
    bool small = align <= 1 && pages <= HAK_SUPERSLAB_PAGES / 2;
    hak_lock_acquire(&lock);
    struct hak_slab *slab = small ? take_slab((unsigned)(HAK_NCLASSES + pages), (unsigned)pages, false, true, zero)
                                  : acquire_region(pages, align, zero);
    hak_lock_release(&lock);
    return slab;
}

/* --- giving back --------------------------------------------------------------------------------------- */

/* The account is the superslab's first member. */
static struct superslab *superslab_of(struct hak_dirty *slabs)
{
    return (struct superslab *)slabs;
}

static bool claim(struct hak_dirty *d, unsigned first, unsigned slabs)
{
    superslab_of(d)->used |= slab_bits(first, slabs);
    return true;
}

/* A superslab that is wholly free goes when the lock is let go of. */
static void leave(struct superslab *s)
{
    if (s->capacity)
        HAK_LIST_REMOVE(&lists[s->class], s);
    s->state = LEAVING;
    s->next = leaving;
    leaving = s;
}

static void unmap_if_clean(struct superslab *s)
{
    if (s->used || s->slabs.dirty)
        return;
    hak_space_free(s->slabs.base, s->count, hak_parts.release->cause);
    hak_meta_recycle(&recycled, s);
    unmaps++;
}

static void make_free(struct hak_dirty *d, unsigned first, unsigned slabs)
{
    struct superslab *s = superslab_of(d);
    s->used &= ~slab_bits(first, slabs);
    if (s->state == LEFT)
        unmap_if_clean(s);
    else if (s->state == KNOWN && !s->used)
        leave(s);
}

static enum hak_cause cause_of(const struct hak_dirty *d)
{
    (void)d;
    return HAK_CAUSE_partial_release;
}

static struct hak_purger purger = {
    .queue = &dirty,
    .lock = &lock,
    .purging = &purging,
    .claim = claim,
    .settle = make_free,
    .cause = cause_of,
};

/* First its pages. While the kernel refuses some, the superslab stays: whatever purges later asks again. */
static void give_back(struct superslab *s)
{
    if (hak_purge_enter(&purger, true)) {
        while (hak_purge_region(&purger, &s->slabs, hak_parts.release->cause))
            ;
        hak_purge_leave(&purger);
    }
    hak_lock_acquire(&lock);
    s->state = LEFT;
    unmap_if_clean(s);
    hak_lock_release(&lock);
}

static void unlock(void)
{
    struct superslab *s = leaving;
    leaving = NULL;
    hak_lock_release(&lock);
    for (struct superslab *next; s; s = next) {
        next = s->next;
        give_back(s);
    }
}

/* What a purge left wholly free goes. */
static void unmap_free(void)
{
    hak_lock_acquire(&lock);
    unlock();
}

static void release(struct hak_slab *slab)
{
    hak_lock_acquire(&lock);
    struct superslab *s = slab->region;
    unsigned i = (unsigned)((size_t)(slab->base - s->slabs.base) / s->slabs.unit);
    unsigned n = s->capacity ? 1 : s->slabs.pages;
    bool old = hak_slab_state(slab) != HAK_SLAB_RETURNED;
    hak_space_forget(slab, 0, slab->pages);
    hak_dirty_put(&s->slabs, i, n, old);
    make_free(&s->slabs, i, n);
    bool due = hak_purge_is_due(&purger);
    unlock();
    if (due) {
        hak_purge_due(&purger, SIZE_MAX);
        unmap_free();
    }
}

static void publish(struct hak_slab *slab)
{
    hak_lock_acquire(&lock);
    bool live = !hak_slab_all_back(slab);
    if (live)
        hak_slab_list_push(&partial_lists[slab->cls], slab);
    hak_lock_release(&lock);
    if (!live)
        hak_parts_reap_slab(slab);
}

static void all_back(struct hak_slab *slab, unsigned cls)
{
    (void)cls;
    hak_lock_acquire(&lock);
    bool mine = hak_slab_all_back(slab) && slab->listed; /* in this order: an owner writes `listed` without the lock */
    if (mine)
        hak_slab_list_remove(&partial_lists[slab->cls], slab);
    hak_lock_release(&lock);
    if (mine)
        hak_parts_reap_slab(slab);
}

static size_t trim(size_t keep)
{
    size_t bytes = hak_purge_trim(&purger, keep);
    unmap_free();
    return bytes;
}

static bool purge_tick(uint64_t now_ms)
{
    bool more = hak_purge_tick_of(&purger, now_ms);
    unmap_free();
    return more;
}

static void stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_begin(w, "legacy");
    hak_stats_number(w, "unmapped", unmaps);
    hak_purge_stats(&purger, w);
    hak_stats_end(w);
    hak_lock_release(&lock);
}

const struct hak_backend hak_backend_legacy = {
    .name = "legacy",
    .stages = stages,
    .acquire_slab = acquire_slab,
    .adopt = adopt,
    .acquire_run = acquire_run,
    .release = release,
    .publish = publish,
    .all_back = all_back,
    .trim = trim,
    .purge_tick = purge_tick,
    .stats = stats,
};
