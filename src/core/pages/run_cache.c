/* SPDX-License-Identifier: MIT
 * See run_cache.h. */
#include "run_cache.h"

#include "core/base/clock.h"
#include "core/base/work.h"
#include "dirty.h"
#include "page_heap.h"

HAK_SELDOM struct hak_run_cache hak_run_cache;
static struct hak_run_cache *const cache = &hak_run_cache;

#define MOST_PER_TICK 512u /* runs; HAKMEM_ACE_CACHE_MB lets more wait */

/* Held while a run is on no stack and not yet in the page heap, so that no fork happens in between. */
static HAK_LOCK(flushing, HAK_RANK_RUNS);

struct hak_slab *hak_run_cache_take(enum hak_run_kind kind, size_t pages)
{
    struct hak_slab *run = hak_run_cache_take_last(kind, pages);
    if (!run && pages <= HAK_RUN_LENGTHS && (run = hak_slab_stack_pop(&cache->older[kind][pages])))
        HAK_SUB_RELAXED(&cache->kinds[kind].older, pages);
    return run;
}

struct hak_slab *hak_run_cache_keep(enum hak_run_kind kind, struct hak_slab *run, size_t most)
{
    size_t pages = run->pages;
    if (kind == HAK_RUNS_SPANS)
        hak_run_cache_uncount(run);
    if (pages > HAK_RUN_LENGTHS || HAK_LOAD_RELAXED(&cache->kinds[kind].older) + pages > most)
        return run;
    HAK_ADD_RELAXED(&cache->kinds[kind].older, pages);
    hak_slab_stack_push(&cache->older[kind][pages], run);
    return NULL;
}

size_t hak_run_cache_waiting(enum hak_run_kind kind)
{
    size_t pages = HAK_LOAD_RELAXED(&cache->kinds[kind].older);
    for (unsigned i = 0; i <= HAK_RUN_LENGTHS; i++)
        pages += HAK_LOAD_RELAXED(&cache->last[kind][i]) >> HAK_RUN_PAGES_SHIFT;
    return pages;
}

size_t hak_run_cache_counted(void)
{
    size_t bytes = 0;
    for (unsigned i = 0; i <= HAK_RUN_SHORT(HAK_RUNS_SPANS); i++) {
        const struct hak_slab *run = hak_run_of(HAK_LOAD_RELAXED(&cache->last[HAK_RUNS_SPANS][i]));
        bytes += run ? run->requested : 0;
    }
    return bytes;
}

/* Gives the last run of a row, or else one of its older ones, to the page heap. */
static bool flush_one(enum hak_run_kind kind, unsigned row)
{
    hak_lock_acquire(&flushing);
    struct hak_slab *run = hak_run_cache_take_any(kind, row);
    if (!run && (run = hak_slab_stack_pop(&cache->older[kind][row])))
        HAK_SUB_RELAXED(&cache->kinds[kind].older, row);
    if (run) {
        if (kind == HAK_RUNS_SPANS)
            hak_run_cache_uncount(run);
        HAK_ADD_RELAXED(&cache->kinds[kind].runs, 1);
        HAK_ADD_RELAXED(&cache->kinds[kind].pages, run->pages);
        hak_pages_put(run);
    }
    hak_lock_release(&flushing);
    return run;
}

/* Gives up to so many runs to the page heap. Returns true if no more wait. */
static bool flush(size_t most)
{
    for (unsigned kind = 0; kind < HAK_RUN_KINDS; kind++)
        for (unsigned row = 0; row <= HAK_RUN_LENGTHS; row++)
            while (flush_one(kind, row))
                if (!most--)
                    return false;
    return true;
}

void hak_run_cache_flush(void)
{
    size_t waiting = 0;
    for (unsigned kind = 0; kind < HAK_RUN_KINDS; kind++)
        waiting += hak_run_cache_waiting(kind);
    (void)flush(waiting);
}

void hak_run_cache_tick(uint64_t now_ms)
{
    static _Atomic(uint64_t) flushed_ms;
    if (HAK_LOAD_RELAXED(&hak_slept_ms) != now_ms &&
        hak_clock_age(HAK_LOAD_RELAXED(&flushed_ms), now_ms) < hak_purge_delay_ms())
        return;
    if (flush(MOST_PER_TICK))
        HAK_STORE_RELAXED(&flushed_ms, now_ms);
}
