/* SPDX-License-Identifier: MIT
 * The smallest useful span backend: a bump pointer through one superslab after the other. A page is handed out
 * once; it is handed out again only after its whole superslab was free. One lock guards everything.
 * Invariant: `live` of a region counts the pages handed out and not yet taken back; a region with live == 0 is the
 * current one of its kind, or is kept for reuse. docs/write-your-own-backend.md walks through it. */
#include "core/plugin.h"

/* One superslab that is cut into runs, or several that hold one large run. */
struct region {
    struct region *next; /* of those that are kept */
    char *base;
    size_t superslabs;
    bool header; /* for blocks with a header byte */
    size_t bumped; /* pages handed out so far: the next run begins here */
    size_t live;
    bool dirty; /* pages above `bumped` have old content */
};

static HAK_LOCK(lock, HAK_RANK_BACKEND);
static struct region *current[2]; /* the one being cut; [1] is for blocks with a header byte */
static struct region *kept[2];    /* wholly free, of one superslab */
static unsigned kept_count;
static struct hak_meta_list unused_regions;
static struct hak_slab *partial_lists[HAK_NCLASSES];
static uint64_t kept_reused, unmaps;

/* The ways in which slabs are found; the statistics show how often each served. */
enum { STAGE_PARTIAL, STAGE_BUMP, STAGE_KEPT, STAGE_MAP };
static const struct hak_stage stages[] = {
    [STAGE_PARTIAL] = {"partial", true, "a PARTIAL slab of its class, which is adopted"},
    [STAGE_BUMP] = {"bump", true, "the next pages of the current region"},
    [STAGE_KEPT] = {"kept", true, "a region that was kept when all of it was free"},
    [STAGE_MAP] = {"map", true, "a new region"},
    {0},
};

/* --- regions --------------------------------------------------------------------------------------- */

static struct region *map_region(size_t superslabs, size_t align, bool header)
{
    struct region *r = hak_meta_new(&unused_regions, sizeof *r);
    if (!r)
        return NULL;
    r->superslabs = superslabs;
    r->header = header;
    r->base = hak_space_alloc(superslabs, align, header);
    if (!r->base) {
        hak_meta_recycle(&unused_regions, r);
        return NULL;
    }
    hak_budget_take(superslabs * HAK_SUPERSLAB); /* HAKMEM_LIMIT_MB counts whole regions here */
    hak_count_stage(STAGE_MAP);
    return r;
}

/* The address space takes only pages that read as zero. Where the kernel refuses them, the region is given
 * up: never used again, never wrong. */
static size_t unmap_region(struct region *r)
{
    struct iovec range = {r->base, r->superslabs * HAK_SUPERSLAB};
    bool returned = hak_parts.release->release(&range, 1, hak_parts.release->cause) == range.iov_len;
    if (returned)
        hak_space_free(r->base, r->superslabs, hak_parts.release->cause);
    hak_budget_give(range.iov_len);
    unmaps++;
    hak_meta_recycle(&unused_regions, r);
    return returned ? range.iov_len : 0;
}

/* HAKMEM_EXAMPLE_KEEP: so many wholly free regions wait, with their pages and their charge to the budget. */
static void keep_or_unmap(struct region *r)
{
    if (r->superslabs > 1 || kept_count >= hak_options.example_keep) {
        unmap_region(r);
        return;
    }
    r->bumped = 0;
    r->dirty = true;
    r->next = kept[r->header];
    kept[r->header] = r;
    kept_count++;
}

static struct region *take_kept(bool header)
{
    struct region *r = kept[header];
    if (!r)
        return NULL;
    kept[header] = r->next;
    kept_count--;
    kept_reused++;
    hak_count_stage(STAGE_KEPT);
    return r;
}

/* --- runs ------------------------------------------------------------------------------------------ */

/* Makes the descriptors of the pages say that they are one run. */
static struct hak_slab *describe(struct region *r, size_t first, size_t pages)
{
    char *base = r->base + first * HAK_PAGE;
    struct hak_slab *slab = hak_space_page(base);
    slab->base = base;
    slab->pages = (uint16_t)pages;
    slab->region = r;
    hak_space_describe(slab, 0, pages);
    return slab;
}

static struct region *with_room(size_t pages, bool header)
{
    struct region *r = current[header];
    if (r && r->bumped + pages <= HAK_SUPERSLAB_PAGES)
        return r;
    struct region *fresh = take_kept(header);
    if (!fresh && !(fresh = map_region(1, 1, header)))
        return NULL;
    if (r && r->live == 0) /* too short for this run, and nothing left in it that could come back */
        keep_or_unmap(r);
    return current[header] = fresh;
}

static struct hak_slab *bump(size_t pages, bool header, bool *zeroed)
{
    struct region *r = with_room(pages, header);
    if (!r)
        return NULL;
    struct hak_slab *slab = describe(r, r->bumped, pages);
    *zeroed = !r->dirty;
    r->bumped += pages;
    r->live += pages;
    hak_count_stage(STAGE_BUMP);
    return slab;
}

static struct hak_slab *bump_whole(size_t pages, size_t align)
{
    size_t superslabs = hak_align_up(pages, HAK_SUPERSLAB_PAGES) / HAK_SUPERSLAB_PAGES;
    struct region *r = map_region(superslabs, hak_max(1, align / HAK_SUPERSLAB_PAGES), false);
    if (!r)
        return NULL;
    r->live = pages;
    return describe(r, 0, pages);
}

static struct hak_slab *take_run(size_t pages, size_t align, bool header, bool *zeroed)
{
    *zeroed = true;
    return pages <= HAK_SUPERSLAB_PAGES && align <= 1 ? bump(pages, header, zeroed) : bump_whole(pages, align);
}

static bool is_current(const struct region *r)
{
    return r == current[false] || r == current[true];
}

/* The current region begins again from its start; others go back. */
static void release_pages(struct region *r, size_t pages)
{
    r->live -= pages;
    if (r->live)
        return;
    if (is_current(r)) {
        r->bumped = 0;
        r->dirty = true;
    } else {
        keep_or_unmap(r);
    }
}

/* --- PARTIAL slabs --------------------------------------------------------------------------------- */

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

/* --- the slots of struct hak_backend --------------------------------------------------------------- */

static struct hak_slab *acquire_slab(struct hak_thread *t, unsigned cls)
{
    bool zeroed, header = hak_parts_has_header(cls);
    hak_lock_acquire(&lock);
    struct hak_slab *slab = take_partial(t, cls);
    if (!slab && (slab = take_run(hak_slab_pages[cls], 1, header, &zeroed)))
        hak_slab_format(slab, cls, t);
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

static struct hak_slab *acquire_run(size_t pages, size_t align, bool *zeroed)
{
    hak_lock_acquire(&lock);
    struct hak_slab *slab = take_run(pages, align, false, zeroed);
    hak_lock_release(&lock);
    if (slab && *zeroed)
        hak_budget_give(pages * HAK_PAGE); /* who has the run charges its pages when he uses them */
    return slab;
}

static void release(struct hak_slab *slab)
{
    struct region *r = slab->region;
    size_t pages = slab->pages;
    hak_lock_acquire(&lock);
    if (hak_slab_state(slab) == HAK_SLAB_EMPTY)
        hak_count_transition(HAK_SLAB_EMPTY, HAK_SLAB_UNUSED);
    if (hak_slab_state(slab) == HAK_SLAB_RETURNED)
        hak_budget_take(pages * HAK_PAGE);
    hak_space_forget(slab, 0, pages);
    release_pages(r, pages);
    hak_lock_release(&lock);
}

/* All blocks may have come back between the transition to PARTIAL and this call. */
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

/* Somebody else may have adopted it between the last free and this call. */
static void all_back(struct hak_slab *slab, unsigned cls)
{
    (void)cls;
    hak_lock_acquire(&lock);
    bool mine = hak_slab_all_back(slab) && slab->listed;
    if (mine)
        hak_slab_list_remove(&partial_lists[slab->cls], slab);
    hak_lock_release(&lock);
    if (mine)
        hak_parts_reap_slab(slab);
}

static size_t unmap_current(unsigned kind)
{
    struct region *r = current[kind];
    if (!r || r->live || !r->dirty)
        return 0;
    current[kind] = NULL;
    return unmap_region(r);
}

static size_t unmap_kept(unsigned kind)
{
    struct region *r = kept[kind];
    if (!r)
        return 0;
    kept[kind] = r->next;
    kept_count--;
    return unmap_region(r);
}

/* What is free and holds pages: the regions that are kept, and the current ones. */
static size_t trim(size_t keep)
{
    size_t purged = 0;
    hak_lock_acquire(&lock);
    for (unsigned kind = 0; kind < 2; kind++) {
        while (kept[kind] && kept_count * HAK_SUPERSLAB > keep)
            purged += unmap_kept(kind);
        if (keep < HAK_SUPERSLAB)
            purged += unmap_current(kind);
    }
    hak_lock_release(&lock);
    return purged;
}

static void stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_begin(w, "example_backend");
    hak_stats_number(w, "kept", kept_count);
    hak_stats_number(w, "reused", kept_reused);
    hak_stats_number(w, "unmapped", unmaps);
    hak_stats_end(w);
    hak_lock_release(&lock);
}

const struct hak_backend hak_backend_example_backend = {
    .name = "example_backend",
    .stages = stages,
    .acquire_slab = acquire_slab,
    .adopt = adopt,
    .acquire_run = acquire_run,
    .release = release,
    .publish = publish,
    .all_back = all_back,
    .trim = trim,
    .stats = stats,
};
