/* SPDX-License-Identifier: MIT
 * From slabs to bins.
 *
 * A refill takes, in this order: the first slab's own free blocks, and its remote ones if there are enough; blocks from
 * the remote cache; blocks not yet carved; the rest of the remote list; the next slab; last, a new slab from the
 * frontend. The caches decide how blocks enter a bin and how bins are bounded (caches/). */
#include "refill.h"

#include "core/base/log.h"
#include "core/os/limit.h"
#include "core/pages/block_batch.h"
#include "core/pages/budget.h"
#include "core/pages/guard.h"
#include "core/pages/mark.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"
#include "core/parts/sparse.h"
#include "owned.h"
#include "remote_cache.h"

#define COLLECT_BYTES 1024u /* so many on a remote list are collected before new blocks are carved */
#define FALLBACK_CLASSES 6u /* how many larger classes are tried */
#define FIRST_BATCH 2u
#define SLAB_WORK 64u /* a new slab counts as so many blocks of work */

/* --- refill ------------------------------------------------------------------------------------------ */

/* Collecting here can save the search for another slab. */
static bool collect(struct hak_heap *heap, struct hak_slab *slab)
{
    uint32_t n = hak_slab_collect(slab);
    hak_count(&heap->counters.remote_saved, n);
    return n != 0;
}

static bool runs_low(const struct hak_slab *slab, uint32_t waiting)
{
    return hak_slab_free_blocks(slab) + (slab->capacity - slab->carved) <= slab->capacity / 8 ||
           (!hak_slab_free_blocks(slab) && waiting * slab->stride >= COLLECT_BYTES);
}

/* Collects the remote list before the slab's own blocks are used up, if it is long or they run low. */
static void collect_early(struct hak_heap *heap, struct hak_slab *slab)
{
    const struct hak_option_values *o = &hak_options;
    uint32_t waiting = hak_slab_remote_count(slab);
    if (HAK_LIKELY(!waiting) || o->p0_no_drain)
        return;
    if (waiting >= o->p0_drain_thresh)
        hak_count(&heap->counters.remote_early, hak_slab_collect(slab));
    else if (runs_low(slab, waiting))
        hak_count(&heap->counters.remote_low_water, hak_slab_collect(slab));
}

static bool own(struct hak_heap *heap, struct hak_slab *slab)
{
    if (!slab) {
        hak_count(&heap->counters.slabs_refused, 1);
        return false;
    }
    hak_slab_tag(slab, heap->tag);
    hak_owned_add(heap, slab);
    hak_count(&heap->counters.slabs_acquired, 1);
    hak_work_add(SLAB_WORK);
    return true;
}

static bool new_slab(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode)
{
    return (mode == HAK_REFILL_BEYOND_BUDGET || hak_bin_is_within_budget(cls)) &&
           own(heap, hak_parts_acquire_slab(heap, cls));
}

/* Under a tight limit, pages are mapped late: this maps those of the slab's next blocks. Without memory, the slab keeps
 * the blocks that it has. Then a bitmap could not be made either, and blocks freed to the slab would be lost; so the
 * bitmap is made first. */
static bool is_mapped(struct hak_slab *slab)
{
    if (HAK_LIKELY(!hak_limit_is_tight) || hak_slab_free_blocks(slab))
        return true;
    hak_slab_has_bitmap(slab);
    bool mapped = !hak_space_open(slab->base, hak_slab_next_end(slab));
    if (!mapped && slab->carved)
        slab->capacity = slab->carved;
    return mapped;
}

/* Replaces a new slab that cannot be mapped by one with free blocks. */
static HAK_COLD bool replace_new(struct hak_heap *heap, struct hak_slab *slab)
{
    unsigned cls = slab->cls;
    hak_owned_release(heap, slab);
    return own(heap, hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_PARTIAL));
}

/* The first slab of the bin; it has a free block. */
static struct hak_slab *usable_slab(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode)
{
    struct hak_bin *b = &heap->bins[cls];
    for (;;) {
        struct hak_slab *slab = b->slabs;
        if (!slab) {
            if (!new_slab(heap, cls, mode))
                return NULL;
            continue;
        }
        if (hak_slab_has_free(slab) || collect(heap, slab)) {
            if (HAK_LIKELY(is_mapped(slab)))
                return slab;
            if (!slab->carved && !replace_new(heap, slab))
                return NULL;
            continue;
        }
        hak_owned_remove(heap, slab);
        if (!hak_slab_retire(slab)) /* a remote free has come in between */
            hak_owned_add(heap, slab);
    }
}

bool hak_bin_is_within_budget(unsigned cls)
{
    return hak_budget_allows(hak_slab_pages[cls] * HAK_PAGE);
}

static void log_refill(const struct hak_slab *slab, uint32_t taken)
{
    bool match = slab->used + hak_slab_free_blocks(slab) == slab->carved;
    hak_log("P0 refill: slab %p, %u-byte blocks, taken %u, active %u of %u%s", (void *)slab->base, slab->stride, taken,
            slab->used, slab->capacity, match ? "" : ", MISMATCH with the blocks carved");
}

static uint32_t take_own(struct hak_heap *heap, unsigned cls, uint32_t want, enum hak_refill_mode mode)
{
    struct hak_slab *slab = usable_slab(heap, cls, mode);
    if (!slab)
        return 0;
    uint32_t taken = hak_cache_take(heap, cls, slab, want, false);
    if (HAK_UNLIKELY(hak_options.p0_log))
        log_refill(slab, taken);
    return taken;
}

/* Fills the bin; returns the number of blocks. */
static uint32_t take_to_bin(struct hak_heap *heap, unsigned cls, uint32_t want, enum hak_refill_mode mode)
{
    uint32_t taken = take_own(heap, cls, want, mode);
    hak_count(&heap->counters.refills, taken != 0);
    hak_count(&heap->counters.refill_blocks, taken);
    return taken;
}

static void *take_single(struct hak_slab *slab)
{
    void *block = NULL;
    if (hak_block_batches_open(slab))
        block = hak_slab_take(slab, 1).head;
    else
        hak_block_batches_take_closed(slab, 1, &block);
    hak_mark_renew(block, slab->cls);
    return block;
}

/* Tries a PARTIAL slab first, since an EMPTY one would become one more slab that is hardly used. */
static struct hak_slab *acquire_shared(struct hak_heap *heap, unsigned cls, bool may_grow)
{
    struct hak_slab *slab = hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_PARTIAL);
    return slab || !may_grow ? slab : hak_parts_acquire_slab(heap, cls);
}

static void leave_shared(struct hak_slab *slab)
{
    if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
        hak_parts.backend->release_slab(slab);
}

void *hak_bin_take_one(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode)
{
    bool may_grow = mode == HAK_REFILL_BEYOND_BUDGET || hak_bin_is_within_budget(cls), is_new = false;
    struct hak_slab *slab;
    while ((slab = acquire_shared(heap, cls, may_grow && !is_new))) {
        hak_slab_tag(slab, HAK_TAG_SHARED);
        bool mapped = is_mapped(slab);
        void *block = mapped ? take_single(slab) : NULL;
        is_new = !slab->carved;
        leave_shared(slab);
        if (block || is_new)
            return block;
    }
    return NULL;
}

/* A thread that uses a class little takes few blocks, and so has few to return when it ends. */
static void start_bin(struct hak_heap *heap, unsigned cls)
{
    heap->bins[cls].batch = (uint16_t)hak_min(FIRST_BATCH, hak_parts.batch[cls]);
    hak_cache_start(heap, cls);
}

/* Not inline, so that hak_bin_fall_back saves no registers for it. */
static HAK_NOINLINE void *fall_back_to_slabs(struct hak_heap *heap, unsigned cls, unsigned end)
{
    void *block = NULL;
    for (unsigned other = cls + 1; other < end && !block; other++) {
        struct hak_slab *slab = heap->bins[other].slabs;
        if (slab && hak_slab_free_blocks(slab))
            block = take_single(slab);
    }
    hak_count(&heap->counters.borrowed, block != NULL);
    return block;
}

/* This touches no new page: neighbouring classes of larger blocks share the free blocks that their fluctuating use
 * leaves. */
void *hak_bin_fall_back(struct hak_heap *heap, unsigned cls)
{
    const struct hak_slab *own = heap->bins[cls].slabs;
    if (hak_strides[cls] < HAK_FALLBACK_MIN || (own && (hak_slab_free_blocks(own) || hak_slab_remote_count(own))))
        return NULL;
    unsigned end = (unsigned)hak_min(cls + 1 + FALLBACK_CLASSES, HAK_NCLASSES);
    for (unsigned other = cls + 1; other < end; other++) {
        void *block = hak_cache_pop_again(heap, other);
        if (block) {
            hak_count(&heap->counters.borrowed, 1);
            return block;
        }
    }
    return fall_back_to_slabs(heap, cls, end);
}

/* A slab's own freed blocks are used before the remote cache. Otherwise they would accumulate while the thread uses
 * blocks of other heaps, whose owners would carve new ones instead: memory would grow in a random walk. */
static bool has_own_free(struct hak_heap *heap, struct hak_slab *slab)
{
    if (slab)
        collect_early(heap, slab);
    return slab && hak_slab_free_blocks(slab);
}

/* Without memory for slots, an array holds no block; but slabs may have some. */
static void *take_past_bin(struct hak_heap *heap, unsigned cls)
{
    const struct hak_bin *b = &heap->bins[cls];
    bool can_take = !hak_cache_can_hold(heap, cls) && b->slabs && hak_slab_has_free(b->slabs) && is_mapped(b->slabs);
    return can_take ? take_single(b->slabs) : NULL;
}

void *hak_bin_refill(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode)
{
    struct hak_bin *b = &heap->bins[cls];
    if (!b->batch)
        start_bin(heap, cls);
    b->swings += b->overflows && b->swings < HAK_SWINGS;
    b->overflows = b->flushes = 0;
    uint32_t taken = 0;
    if (!has_own_free(heap, b->slabs))
        taken = hak_remote_cache_refill(heap, cls); /* the cache serves in place of a slab */
    if (!taken)
        taken = take_to_bin(heap, cls, b->batch, mode);
    if (!taken)
        return take_past_bin(heap, cls);
    b->batch = (uint16_t)hak_min(b->batch * 2u, hak_parts.batch[cls]);
    hak_work_add(taken);
    b->refills++;
    if (HAK_UNLIKELY(hak_options.guard_rate)) /* blocks in a bin count as handed out */
        hak_guard_count(taken);
    return hak_cache_taken(heap, cls);
}

void hak_bin_prewarm(struct hak_heap *heap, unsigned cls, uint32_t blocks)
{
    size_t have = hak_cache_length(heap, cls);
    uint32_t taken = 1;
    for (; have < blocks && taken; have += taken)
        taken = take_to_bin(heap, cls, (uint32_t)(blocks - have), HAK_REFILL_WITHIN_BUDGET);
    hak_count(&heap->counters.prewarmed, have);
}
