/* SPDX-License-Identifier: MIT
 * The plain reference backend: one class in a superslab, one mutex, no caches and no cleverness. A slab comes
 * from the first superslab of its class that has one free; a superslab that is wholly free goes back at once,
 * free slabs of the others after the purge delay.
 * Differential tests use it as the oracle, and comparisons as the B of their A/B. */
#include "core/parts/parts.h"
#include "core/pages/budget.h"
#include "core/os/meta.h"
#include "core/pages/slab_list.h"

struct superslab {
    char *base;
    uint64_t used;  /* bit i: slab i is taken */
    uint64_t dirty; /* bit i: slab i is free, with old content, since dirty_since_ms at the latest */
    uint64_t dirty_since_ms;
    unsigned class, slab_pages, capacity; /* capacity 0: a region handed out as a whole */
    size_t count; /* superslabs, for a run */
    struct superslab *next, *prev;
};

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_BACKEND);
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
static size_t dirty_slabs;

static struct superslab *map_region(size_t count, size_t align, bool header)
{
    struct superslab *s = hak_meta_new(&recycled, sizeof *s);
    if (!s)
        return NULL;
    s->count = count;
    s->base = hak_space_alloc(count, align, header);
    if (!s->base) {
        hak_meta_recycle(&recycled, s);
        return NULL;
    }
    hak_count_stage(STAGE_MAP);
    return s;
}

/* If the kernel does not take the pages, the region is given up: never used again, never wrong. */
static void unmap_region(struct superslab *s)
{
    struct iovec range = {s->base, s->count * HAK_SUPERSLAB};
    if (hak_parts.release->release(&range, 1, hak_parts.release->cause) == range.iov_len)
        hak_space_free(s->base, s->count, hak_parts.release->cause);
    unmaps++;
    hak_meta_recycle(&recycled, s);
}

static struct hak_slab *describe(struct superslab *s, char *base, size_t pages)
{
    struct hak_slab *slab = hak_space_page(base);
    slab->base = base;
    slab->region = s;
    slab->pages = (uint16_t)pages;
    hak_space_describe(slab, 0, pages);
    return slab;
}

static void push(struct superslab *s)
{
    s->prev = NULL;
    s->next = lists[s->class];
    if (s->next)
        s->next->prev = s;
    lists[s->class] = s;
}

static void drop(struct superslab *s)
{
    *(s->prev ? &s->prev->next : &lists[s->class]) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    dirty_slabs -= (size_t)__builtin_popcountll(s->dirty);
    hak_budget_give((size_t)__builtin_popcountll(s->dirty) * s->slab_pages * HAK_PAGE);
    unmap_region(s);
}

static struct superslab *with_free_slab(unsigned class, unsigned slab_pages, bool header)
{
    for (struct superslab *s = lists[class]; s; s = s->next)
        if ((unsigned)__builtin_popcountll(s->used) < s->capacity)
            return s;
    struct superslab *s = map_region(1, 1, header);
    if (!s)
        return NULL;
    s->class = class;
    s->slab_pages = slab_pages;
    s->capacity = (unsigned)(HAK_SUPERSLAB_PAGES / slab_pages);
    push(s);
    return s;
}

static struct hak_slab *take_slab(unsigned class, unsigned slab_pages, bool header)
{
    struct superslab *s = with_free_slab(class, slab_pages, header);
    if (!s)
        return NULL;
    unsigned i = (unsigned)__builtin_ctzll(~s->used);
    struct hak_slab *slab = describe(s, s->base + (size_t)i * slab_pages * HAK_PAGE, slab_pages);
    s->used |= (uint64_t)1 << i;
    if (!(s->dirty >> i & 1))
        hak_budget_take(slab_pages * HAK_PAGE);
    dirty_slabs -= s->dirty >> i & 1;
    s->dirty &= ~((uint64_t)1 << i);
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
    bool header = hak_parts_has_header(cls);
    struct hak_slab *slab = take_slab(cls, hak_slab_pages[cls], header);
    if (!slab && header) /* their zone is full: blocks without headers serve as well */
        slab = take_slab(cls, hak_slab_pages[cls], false);
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

static struct hak_slab *acquire_region(size_t pages, size_t align)
{
    size_t count = hak_align_up(pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    struct superslab *s = map_region(count, hak_max(1, align / HAK_SUPERSLAB_PAGES), false);
    if (!s)
        return NULL;
    hak_budget_take(count * HAK_SUPERSLAB);
    return describe(s, s->base, pages);
}

static struct hak_slab *acquire_run(size_t pages, size_t align, bool *zeroed)
{
    bool small = align <= 1 && pages <= HAK_SUPERSLAB_PAGES / 2;
    hak_lock_acquire(&lock);
    struct hak_slab *slab = small ? take_slab((unsigned)(HAK_NCLASSES + pages), (unsigned)pages, false)
                                  : acquire_region(pages, align);
    hak_lock_release(&lock);
    *zeroed = !small;
    return slab;
}

/* --- giving back --------------------------------------------------------------------------------------- */

/* What the kernel refuses stays dirty. */
static size_t clean_superslab(struct superslab *s, enum hak_cause cause)
{
    struct iovec ranges[HAK_SUPERSLAB_PAGES];
    size_t n = 0, size = s->slab_pages * HAK_PAGE;
    for (uint64_t bits = s->dirty; bits; bits &= bits - 1)
        ranges[n++] = (struct iovec){s->base + (size_t)__builtin_ctzll(bits) * size, size};
    size_t returned = hak_parts.release->release(ranges, n, cause);
    if (returned == n * size) {
        dirty_slabs -= n;
        s->dirty = 0;
        hak_budget_give(returned);
    }
    return returned;
}

static size_t clean_idle(uint64_t now_ms, uint64_t delay_ms, enum hak_cause cause)
{
    size_t returned = 0;
    for (unsigned class = 0; class < NLISTS && dirty_slabs; class++)
        for (struct superslab *s = lists[class]; s; s = s->next)
            if (s->dirty && now_ms - s->dirty_since_ms >= delay_ms)
                returned += clean_superslab(s, cause);
    return returned;
}

static void release_slab(struct superslab *s, size_t offset)
{
    uint64_t bit = (uint64_t)1 << offset / (s->slab_pages * HAK_PAGE);
    s->used &= ~bit;
    s->dirty |= bit;
    s->dirty_since_ms = hak_clock_ms();
    dirty_slabs++;
    if (!s->used)
        drop(s);
    else if (hak_parts.release->at_once)
        clean_superslab(s, HAK_CAUSE_partial_release);
}

static void release(struct hak_slab *slab)
{
    hak_lock_acquire(&lock);
    struct superslab *s = slab->region;
    size_t offset = (size_t)(slab->base - s->base);
    hak_space_forget(slab, 0, slab->pages);
    if (s->capacity) {
        release_slab(s, offset);
    } else {
        hak_budget_give(s->count * HAK_SUPERSLAB);
        unmap_region(s);
    }
    hak_lock_release(&lock);
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
    hak_lock_acquire(&lock);
    size_t returned = dirty_slabs * HAK_PAGE > keep ? clean_idle(hak_clock_ms(), 0, HAK_CAUSE_trim) : 0;
    hak_lock_release(&lock);
    return returned;
}

static bool purge_tick(uint64_t now_ms)
{
    hak_lock_acquire(&lock);
    clean_idle(now_ms, hak_options.purge_delay_ms, HAK_CAUSE_partial_release);
    hak_lock_release(&lock);
    return false;
}

static void fork_prepare(void)
{
    hak_lock_acquire(&lock);
}

static void fork_done(bool in_child)
{
    (void)in_child;
    hak_lock_release(&lock);
}

static void stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_begin(w, "legacy");
    hak_stats_number(w, "unmapped", unmaps);
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
    .fork_prepare = fork_prepare,
    .fork_done = fork_done,
    .stats = stats,
};
