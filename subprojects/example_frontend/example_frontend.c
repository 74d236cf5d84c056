/* SPDX-License-Identifier: MIT
 * A small frontend: 2 to 6 KiB, from pages of its own. It takes them from the page heap in batches, and takes slabs off
 * a batch under one lock. docs/write-your-own-part.md says what else a frontend may do. */
#include "core/pages/page_heap.h"
#include "core/parts/purge.h"
#include "core/plugin.h"

#define BATCH 16u /* pages */

static HAK_LOCK(lock, HAK_RANK_FRONTEND);
static char *batch; /* the rest of the batch */
static size_t left;
static uint64_t batches;

static void give_back(void)
{
    if (left)
        hak_pages_put_rest(batch, left, false);
    left = 0;
}

static bool take_batch(void)
{
    struct hak_page_request r = {.pages = BATCH, .set = HAK_SET_COMMON, .slab = true};
    if (!hak_pages_take(&r, HAK_PAGES_WHOLE) && !hak_pages_take(&r, HAK_PAGES_MAPPED))
        return false;
    give_back();
    batch = r.base;
    left = BATCH;
    batches++;
    return true;
}

/* The backend may have PARTIAL and EMPTY slabs of the class. */
static struct hak_slab *slab_acquire(struct hak_heap *heap, unsigned cls)
{
    size_t pages = hak_slab_pages[cls];
    struct hak_slab *slab = hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_KEPT);
    if (slab)
        return slab;
    hak_lock_acquire(&lock);
    if (left >= pages || take_batch()) {
        slab = hak_pages_describe(batch, pages, true);
        batch += pages * HAK_PAGE;
        left -= pages;
    }
    hak_lock_release(&lock);
    if (slab)
        hak_slab_format(slab, cls, heap);
    return slab;
}

/* Before a trim. */
static void flush(void)
{
    hak_lock_acquire(&lock);
    give_back();
    hak_lock_release(&lock);
}

static void stats(struct hak_stats_writer *w)
{
    hak_lock_acquire(&lock);
    hak_stats_begin(w, "example_frontend");
    hak_stats_number(w, "batches", batches);
    hak_stats_end(w);
    hak_lock_release(&lock);
}

const struct hak_frontend hak_frontend_example_frontend = {
    .name = "example_frontend",
    .min_stride = HAK_EXAMPLE_FRONTEND_MIN,
    .max_stride = HAK_EXAMPLE_FRONTEND_MAX,
    .slab_acquire = slab_acquire,
    .flush = flush,
    .stats = stats,
};
