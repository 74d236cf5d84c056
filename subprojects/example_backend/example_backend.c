/* SPDX-License-Identifier: MIT
 * The smallest useful span backend: for each class a list of PARTIAL slabs and one of a few EMPTY ones; the page heap
 * has all else. One lock guards the lists. docs/write-your-own-part.md walks through it. */
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "core/plugin.h"

static HAK_LOCK(lock, HAK_RANK_BACKEND);
static struct hak_slab *partial_lists[HAK_NCLASSES], *empty_lists[HAK_NCLASSES];
static _Atomic(unsigned) kept[HAK_NCLASSES]; /* slabs on the second list */
static _Atomic(uint64_t) reused;

/* The stages; the statistics show how often each served. */
enum { STAGE_PARTIAL, STAGE_KEPT, STAGE_PAGES, STAGE_MAP };
static const struct hak_stage stages[] = {
    [STAGE_PARTIAL] = {"partial", true, "a PARTIAL slab of its class, which is adopted"},
    [STAGE_KEPT] = {"kept", true, "an EMPTY slab of its class that was kept"},
    [STAGE_PAGES] = {"pages", true, "free pages of a superslab"},
    [STAGE_MAP] = {"map", true, "a new superslab"},
    {0},
};

/* The first slab of a list. */
static struct hak_slab *pop(struct hak_slab **list, unsigned stage)
{
    hak_lock_acquire(&lock);
    struct hak_slab *slab = *list;
    if (slab) {
        hak_slab_list_remove(list, slab);
        hak_count_stage(stage);
    }
    hak_lock_release(&lock);
    return slab;
}

/* A slab that another thread visits is published again by that thread. */
static struct hak_slab *adopt(struct hak_heap *heap, unsigned cls)
{
    struct hak_slab *slab;
    while ((slab = pop(&partial_lists[cls], STAGE_PARTIAL)) && !hak_slab_adopt(slab, heap))
        ;
    return slab;
}

/* Free pages, or new ones. Blocks with a header byte lie in superslabs of their own. */
static struct hak_slab *take_pages(unsigned cls, unsigned set)
{
    struct hak_page_request r = {
        .pages = hak_slab_pages[cls], .set = set, .slab = true, .map_pages = hak_parts.by_class[cls]->map_pages};
    struct hak_slab *slab = hak_pages_take_run(&r, HAK_PAGES_WHOLE);
    if (slab)
        hak_count_stage(STAGE_PAGES);
    else if ((slab = hak_pages_take_run(&r, HAK_PAGES_MAPPED)))
        hak_count_stage(STAGE_MAP);
    return slab;
}

static struct hak_slab *take_kept(unsigned cls)
{
    struct hak_slab *slab = pop(&empty_lists[cls], STAGE_KEPT);
    if (!slab)
        return NULL;
    HAK_SUB_RELAXED(&kept[cls], 1);
    HAK_ADD_RELAXED(&reused, 1);
    return slab;
}

static struct hak_slab *acquire_slab(struct hak_heap *heap, unsigned cls, enum hak_acquire from)
{
    struct hak_slab *slab = adopt(heap, cls);
    if (slab || from == HAK_ACQUIRE_PARTIAL)
        return slab;
    slab = take_kept(cls);
    if (!slab && hak_parts_has_header(cls))
        slab = take_pages(cls, HAK_SET_HEADERS);
    if (!slab)
        slab = take_pages(cls, HAK_SET_COMMON);
    if (slab)
        hak_slab_format(slab, cls, heap);
    return slab;
}

/* Frees the pages of a slab without allocated blocks. */
static void put_free(struct hak_slab *slab)
{
    unsigned cls = slab->cls;
    if (hak_slab_state(slab) != HAK_SLAB_EMPTY)
        hak_parts_empty_slab(slab);
    hak_lock_acquire(&lock);
    bool keeps = HAK_LOAD_RELAXED(&kept[cls]) < hak_options.example_keep;
    if (keeps)
        hak_slab_list_push(&empty_lists[cls], slab);
    else
        hak_pages_put(slab);
    HAK_ADD_RELAXED(&kept[cls], keeps);
    hak_lock_release(&lock);
    if (!keeps)
        hak_pages_bound();
}

/* All blocks of a PARTIAL one may have come back between the transition and this call. */
static void release_slab(struct hak_slab *slab)
{
    hak_lock_acquire(&lock);
    bool live = hak_slab_state(slab) == HAK_SLAB_PARTIAL && !hak_slab_all_back(slab);
    if (live)
        hak_slab_list_push(&partial_lists[slab->cls], slab);
    hak_lock_release(&lock);
    if (!live)
        put_free(slab);
}

/* Another thread may have adopted it between the last free and this call. */
static void all_back(struct hak_slab *slab, unsigned cls)
{
    hak_lock_acquire(&lock);
    bool mine = hak_slab_all_back(slab) && slab->listed;
    if (mine)
        hak_slab_list_remove(&partial_lists[cls], slab);
    hak_lock_release(&lock);
    if (mine)
        put_free(slab);
}

static void flush(void)
{
    struct hak_slab *slab;
    hak_lock_acquire(&lock);
    for (unsigned cls = 0; cls < HAK_NCLASSES; HAK_STORE_RELAXED(&kept[cls++], 0))
        while ((slab = empty_lists[cls])) {
            hak_slab_list_remove(&empty_lists[cls], slab);
            hak_pages_put(slab);
        }
    hak_lock_release(&lock);
}

static void stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "example_backend");
    hak_stats_number(w, "reused", HAK_LOAD_RELAXED(&reused));
    hak_stats_end(w);
}

const struct hak_backend hak_backend_example_backend = {
    .name = "example_backend",
    .stages = stages,
    .acquire_slab = acquire_slab,
    .release_slab = release_slab,
    .all_back = all_back,
    .flush = flush,
    .stats = stats,
};
