/* SPDX-License-Identifier: MIT
 * The plain reference backend: one class per superslab, one list of PARTIAL slabs per class, one mutex, no caches and
 * no cleverness. A superslab that is wholly free is returned at once, free slabs of other superslabs after the purge
 * delay. Differential tests use it as the oracle, and comparisons as the B of an A/B. */
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "core/plugin.h"

static HAK_LOCK(lists_lock, HAK_RANK_BACKEND);
static struct hak_slab *partial_lists[HAK_NCLASSES];

enum { STAGE_PARTIAL, STAGE_UNUSED, STAGE_MAP };
static const struct hak_stage one_stage[] = {
    [STAGE_PARTIAL] = {"partial", true, "a PARTIAL slab of its class, which is adopted"},
    [STAGE_UNUSED] = {"unused", true, "a free slab of a superslab of its class"},
    [STAGE_MAP] = {"map", true, "a new superslab"},
    {0},
};

/* --- taking --------------------------------------------------------------------------------------------- */

static struct hak_slab *adopt(struct hak_heap *heap, unsigned cls)
{
    hak_lock_acquire(&lists_lock);
    struct hak_slab *slab;
    bool adopted = false;
    while (!adopted && (slab = partial_lists[cls])) {
        hak_slab_list_remove(&partial_lists[cls], slab);
        adopted = hak_slab_adopt(slab, heap);
    }
    if (slab)
        hak_count_stage(STAGE_PARTIAL);
    hak_lock_release(&lists_lock);
    return slab;
}

static struct hak_slab *take_of_class(unsigned cls, bool header)
{
    struct hak_page_request r = {.pages = hak_slab_pages[cls],
                                 .set = HAK_SET_OWN + cls,
                                 .slab = true,
                                 .header = header,
                                 .map_pages = hak_parts.by_class[cls]->map_pages,
                                 .until = HAK_PAGES_MAPPED};
    struct hak_slab *slab = hak_pages_take_run(&r, HAK_PAGES_FREE);
    if (slab)
        hak_count_stage(r.from == HAK_PAGES_FREE ? STAGE_UNUSED : STAGE_MAP);
    return slab;
}

static struct hak_slab *acquire_of_class(struct hak_heap *heap, unsigned cls, enum hak_acquire from)
{
    struct hak_slab *slab = adopt(heap, cls);
    if (slab || from != HAK_ACQUIRE_ANY)
        return slab;
    bool header = hak_parts_has_header(cls);
    slab = take_of_class(cls, header);
    if (!slab && header) /* the header zone is full, and blocks without headers will do */
        slab = take_of_class(cls, false);
    if (slab)
        hak_slab_format(slab, cls, heap);
    return slab;
}

/* --- releasing ---------------------------------------------------------------------------------------- */

/* Frees the pages of a slab without allocated blocks. */
static void put_free(struct hak_slab *slab)
{
    if (hak_slab_state(slab) != HAK_SLAB_EMPTY)
        hak_parts_empty_slab(slab);
    hak_pages_put(slab);
    hak_pages_bound();
}

static void release_slab(struct hak_slab *slab)
{
    hak_lock_acquire(&lists_lock);
    bool live = hak_slab_state(slab) == HAK_SLAB_PARTIAL && !hak_slab_all_back(slab);
    if (live)
        hak_slab_list_push(&partial_lists[slab->cls], slab);
    hak_lock_release(&lists_lock);
    if (!live)
        put_free(slab);
}

static void all_back(struct hak_slab *slab, unsigned cls)
{
    (void)cls;
    hak_lock_acquire(&lists_lock);
    /* this comes first, since an owner writes `listed` without the lock */
    bool mine = hak_slab_all_back(slab) && slab->listed;
    if (mine)
        hak_slab_list_remove(&partial_lists[slab->cls], slab);
    hak_lock_release(&lists_lock);
    if (mine)
        put_free(slab);
}

const struct hak_backend hak_backend_legacy = {
    .name = "legacy",
    .stages = one_stage,
    .acquire_slab = acquire_of_class,
    .release_slab = release_slab,
    .all_back = all_back,
};
