/* SPDX-License-Identifier: MIT
 * The shared pool: slabs of all classes share superslabs. A slab is acquired in stages, whose table, read from top to
 * bottom, is the policy: first slabs without an owner, from lock-free stacks (slab_cache.c); then pages of the page
 * heap: dirty ones, free ones beside pages in use, those of wholly free superslabs, and last new ones. */
#include "core/base/probe.h"
#include "core/heap/heaps.h"
#include "core/heap/remote_cache.h"
#include "core/os/huge_page.h"
#include "core/os/limit.h"
#include "core/pages/page_heap.h"
#include "core/plugin.h"
#include "slab_cache.h"

#define HUGE_FROM (16 * HAK_MIB)
#define HUGE_LOOK_BACK 4u

/* The policy, top to bottom. */
enum stage { STAGE_HOT, STAGE_WARM, STAGE_PARTIAL, STAGE_EMPTY, STAGE_UNUSED, STAGE_DRAIN, STAGE_LRU, STAGE_MAP };
static const struct hak_stage acquire_stages[] = {
    [STAGE_HOT] = {"hot", false, "a cached EMPTY slab of its class"},
    [STAGE_WARM] = {"warm", false, "a cached EMPTY slab of another class, of the same length"},
    [STAGE_PARTIAL] = {"partial", false, "a PARTIAL slab of its class, which is adopted"},
    [STAGE_EMPTY] = {"empty", true, "dirty pages, as EMPTY slabs left them"},
    [STAGE_UNUSED] = {"unused", true, "free pages of a superslab"},
    [STAGE_DRAIN] = {"drain", true, "pages that returned remote blocks, or ended threads, left free"},
    [STAGE_LRU] = {"lru", true, "a cached superslab that was wholly free"},
    [STAGE_MAP] = {"map", true, "a new superslab"},
    {0},
};

static _Atomic(uint64_t) prefault_touched;

/* --- stages ------------------------------------------------------------------------------------------ */

struct request {
    struct hak_heap *heap;
    unsigned cls;
    enum stage stage; /* result: the stage that served */
};

static const enum stage stage_of[] = {
    [HAK_PAGES_DIRTY] = STAGE_EMPTY,
    [HAK_PAGES_FREE] = STAGE_UNUSED,
    [HAK_PAGES_WHOLE] = STAGE_LRU,
    [HAK_PAGES_MAPPED] = STAGE_MAP,
};

static bool is_dense(void *superslab)
{
    int resident = superslab ? hak_os_resident(superslab, HAK_HUGE_PAGE, HAK_CAUSE_huge_page) : 0;
    return resident > 0 && hak_huge_page_is_dense((size_t)resident, HAK_HUGE_PAGE);
}

/* In a larger heap huge pages pay. They waste little if the program touches what it gets: a superslab that was mapped a
 * little earlier shows that. Two simultaneous threads may check the same one. */
static void advise_superslabs_huge(char *base, size_t bytes)
{
    static _Atomic(char *) mapped[HUGE_LOOK_BACK];
    static _Atomic(unsigned) turn;
    struct hak_space_stats space;
    if (hak_options.thp != HAK_THP_AUTO || HAK_SUPERSLAB < HAK_HUGE_PAGE)
        return;
    char *before = HAK_EXCHANGE_RELAXED(&mapped[HAK_ADD_RELAXED(&turn, 1) % HUGE_LOOK_BACK], base);
    hak_space_stats(&space);
    if (space.handed_out > HUGE_FROM && is_dense(before))
        hak_huge_page_advise(base, bytes);
}

static void prefault(char *base, size_t bytes)
{
    if (hak_os_advise(base, bytes, HAK_ADVICE_POPULATE, HAK_CAUSE_prefault) == 0 || hak_options.no_fallback_prefault)
        return;
    for (size_t i = 0; i < bytes; i += HAK_SYSTEM_PAGE) /* kernels before 5.14 */
        ((volatile char *)base)[i] = 0;
    HAK_ADD_RELAXED(&prefault_touched, bytes / HAK_SYSTEM_PAGE);
}

static void prepare_superslabs(char *base, size_t bytes)
{
    advise_superslabs_huge(base, bytes);
    if (hak_options.ss_prefault && !hak_limit_is_tight) /* under a tight limit it is mapped late */
        prefault(base, bytes);
}

/* Takes pages of the page heap, from the first of these places that has some. */
static struct hak_slab *take_slab_pages(struct request *r, enum hak_pages_from from, enum hak_pages_from until,
                                        bool header)
{
    struct hak_page_request pages = {.pages = hak_slab_pages[r->cls],
                                     .until = until,
                                     .slab = true,
                                     .set = header ? HAK_SET_HEADERS : HAK_SET_COMMON,
                                     .map_pages = hak_parts.by_class[r->cls]->map_pages,
                                     .fresh = prepare_superslabs};
    struct hak_slab *slab = hak_pages_take_run(&pages, from);
    r->stage = stage_of[pages.from];
    return slab;
}

/* Remote blocks that this thread has not returned may complete a slab; heaps that a fork left may hold slabs. */
static struct hak_slab *drain_for(struct request *r, bool header)
{
    hak_remote_cache_flush(r->heap);
    hak_heaps_dissolve(UINT64_MAX, HAK_DISSOLVED_AT_ONCE);
    struct hak_slab *slab = hak_slab_cache_adopt(r->heap, r->cls);
    if (!slab)
        slab = take_slab_pages(r, HAK_PAGES_DIRTY, HAK_PAGES_DIRTY, header);
    r->stage = STAGE_DRAIN;
    return slab;
}

/* The stages that need no lock. */
static struct hak_slab *find_kept(struct request *r, enum hak_acquire from)
{
    struct hak_slab *slab = from != HAK_ACQUIRE_PARTIAL ? hak_slab_cache_take_empty(r->cls) : NULL;
    r->stage = slab ? slab->cls == r->cls ? STAGE_HOT : STAGE_WARM : STAGE_PARTIAL;
    return slab ? slab : hak_slab_cache_adopt(r->heap, r->cls);
}

static HAK_NOINLINE struct hak_slab *find_others(struct request *r, bool header)
{
    struct hak_slab *slab = take_slab_pages(r, HAK_PAGES_DIRTY, HAK_PAGES_FREE, header);
    if (!slab)
        slab = drain_for(r, header);
    if (!slab)
        slab = take_slab_pages(r, HAK_PAGES_WHOLE, HAK_PAGES_MAPPED, header);
    return slab;
}

static struct hak_slab *acquire_by_stages(struct hak_heap *heap, unsigned cls, enum hak_acquire from)
{
    struct request r = {.heap = heap, .cls = cls};
    struct hak_slab *slab = find_kept(&r, from);
    if (!slab && from == HAK_ACQUIRE_ANY) {
        bool header = hak_parts_has_header(cls);
        slab = find_others(&r, header);
        if (!slab && header) /* the header zone is full, and blocks without headers will do */
            slab = find_others(&r, false);
    }
    if (!slab)
        return NULL;
    hak_count_stage(r.stage);
    HAK_PROBE(stage, acquire_stages[r.stage].name, cls, slab->base);
    if (HAK_UNLIKELY(hak_options.log_acquire))
        hak_log("SS_ACQUIRE %u-byte blocks, stage %s: slab %p", hak_strides[cls], acquire_stages[r.stage].name,
                (void *)slab->base);
    if (hak_slab_state(slab) != HAK_SLAB_ACTIVE) /* an adopted PARTIAL slab keeps its blocks */
        hak_slab_format(slab, cls, heap);
    return slab;
}

/* --- the rest ------------------------------------------------------------------------------------------- */

static uint64_t partial_slabs(const struct hak_counters *c)
{
    return c->transitions[HAK_SLAB_FULL][HAK_SLAB_PARTIAL] + c->transitions[HAK_SLAB_ACTIVE][HAK_SLAB_PARTIAL] -
           c->transitions[HAK_SLAB_PARTIAL][HAK_SLAB_ACTIVE] - c->transitions[HAK_SLAB_PARTIAL][HAK_SLAB_FULL];
}

static void write_pool_stats(struct hak_stats_writer *w)
{
    struct hak_heaps_totals totals;
    hak_heaps_totals(&totals);
    hak_stats_begin(w, "shared_pool");
    hak_stats_number(w, "partial_slabs", partial_slabs(&totals.counters));
    hak_stats_number(w, "prefault_touched", HAK_LOAD_RELAXED(&prefault_touched));
    hak_stats_end(w);
}

const struct hak_backend hak_backend_shared_pool = {
    .name = "shared_pool",
    .stages = acquire_stages,
    .acquire_slab = acquire_by_stages,
    .release_slab = hak_slab_cache_put,
    .all_back = hak_slab_cache_all_back,
    .flush = hak_slab_cache_flush,
    .purge_tick = hak_slab_cache_tick,
    .stats = write_pool_stats,
};
