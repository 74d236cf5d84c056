/* SPDX-License-Identifier: MIT
 * The pool frontend: blocks of 8 to 52 KiB, whose slabs come from a reserve of pages that each thread has. Like tiny
 * blocks they come from bins, and are freed with a single load of a page tag. The pool adds the reserve, and
 * prewarming: it fills bins when a thread starts, with a fixed number of blocks or as many as earlier threads used. */
#include <limits.h>

#include "core/base/work.h"
#include "core/heap/bin.h"
#include "core/plugin.h"
#include "reserve.h"

#define VISITS 64u /* visits to reserves in a tick */
#define BIN_BYTES (128 * HAK_KIB)

extern const struct hak_frontend hak_frontend_pool;

/* The original's classes and its numbers of prewarmed blocks: fixed, and the initial value of the adaptive number. */
static const struct {
    uint32_t size;
    uint8_t fixed, adaptive;
} warm_classes[POOL_WARM_CLASSES] = {
    {8 * 1024, 16, 8}, {16 * 1024, 16, 8}, {24 * 1024, 12, 4}, {32 * 1024, 8, 4},
    {40 * 1024, 8, 2}, {48 * 1024, 4, 2},  {52 * 1024, 4, 2},
};

enum { PREWARM_OFF, PREWARM_FIXED, PREWARM_ADAPTIVE };

static _Atomic(uint32_t) adaptive[POOL_WARM_CLASSES]; /* blocks for the next thread */

static bool is_on(const struct hak_option_values *options)
{
    return options->pool_tls;
}

static int init(const struct hak_option_values *options, unsigned place)
{
    for (unsigned i = 0; i < POOL_WARM_CLASSES; i++)
        HAK_STORE_RELAXED(&adaptive[i], warm_classes[i].adaptive);
    return hak_reserve_init(options, place);
}

static struct hak_slab *slab_acquire(struct hak_heap *heap, unsigned cls)
{
    struct hak_slab *slab = hak_parts.backend->acquire_slab(heap, cls, HAK_ACQUIRE_KEPT);
    if (slab)
        return slab;
    slab = hak_reserve_take(heap, hak_slab_pages[cls]);
    if (slab)
        hak_slab_format(slab, cls, heap);
    return slab;
}

static uint32_t pool_bin_capacity(unsigned cls)
{
    return (uint32_t)hak_max(2, BIN_BYTES / hak_strides[cls]);
}

/* --- prewarm -------------------------------------------------------------------------------------------- */

/* Another frontend may have taken its class. */
static bool is_own_class(unsigned i)
{
    HAK_ASSERT(i < POOL_WARM_CLASSES);
    return hak_parts.by_class[hak_class_of(warm_classes[i].size)] == &hak_frontend_pool;
}

/* Touches the pages of a block, so that its first use causes no page fault. Leaves the words that a free block
 * carries. */
static void touch(unsigned cls, void *block)
{
    for (size_t i = 2 * sizeof(void *); i < hak_strides[cls]; i += HAK_SYSTEM_PAGE)
        ((volatile char *)block)[i] = 0;
}

static void prewarm(struct hak_heap *heap, unsigned i, uint32_t blocks, struct warm_bin *warm)
{
    unsigned cls = hak_class_of(warm_classes[i].size);
    hak_bin_prewarm(heap, cls, blocks);
    hak_cache_each(cls, touch);
    warm->refills = heap->bins[cls].refills;
    warm->first = hak_cache_first(cls);
}

static void prewarm_pool(struct hak_heap *heap)
{
    uint32_t mode = hak_options.pool_prewarm;
    struct reserve *r = mode == PREWARM_OFF || !is_on(&hak_options) ? NULL : hak_reserve_of(heap);
    for (unsigned i = 0; r && i < POOL_WARM_CLASSES; i++)
        if (is_own_class(i))
            prewarm(heap, i, mode == PREWARM_FIXED ? warm_classes[i].fixed : HAK_LOAD_RELAXED(&adaptive[i]),
                    &r->warm[i]);
}

/* A class that ran out gets more blocks for the next thread; a class that was not used gets fewer. */
static void adapt(const struct hak_heap *heap, unsigned i, const struct warm_bin *warm)
{
    unsigned cls = hak_class_of(warm_classes[i].size);
    uint32_t now = HAK_LOAD_RELAXED(&adaptive[i]);
    bool ran_out = heap->bins[cls].refills != warm->refills, unused = !ran_out && hak_cache_first(cls) == warm->first;
    if (ran_out && now < warm_classes[i].fixed)
        HAK_STORE_RELAXED(&adaptive[i], now + 1);
    else if (unused && now > 0)
        HAK_STORE_RELAXED(&adaptive[i], now - 1);
}

static void end_pool(struct hak_heap *heap)
{
    bool adapts = hak_options.pool_prewarm == PREWARM_ADAPTIVE && is_on(&hak_options) && heap == hak_self.heap;
    struct reserve *r = adapts ? hak_reserve_of(heap) : NULL;
    for (unsigned i = 0; r && i < POOL_WARM_CLASSES; i++)
        if (is_own_class(i))
            adapt(heap, i, &r->warm[i]);
    hak_reserve_end(heap);
}

/* --- the rest -------------------------------------------------------------------------------------------- */

static void flush_reserve(void)
{
    hak_reserve_age(hak_clock_ms(), 0, UINT_MAX);
}

static void purge_tick(uint64_t now_ms)
{
    bool slept = HAK_LOAD_RELAXED(&hak_slept_ms) == now_ms;
    hak_reserve_age(now_ms, slept ? 0 : hak_max(hak_purge_delay_ms(), 1), VISITS);
}

static void write_reserve_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "pool");
    hak_reserve_stats(w);
    hak_stats_begin_array(w, "adaptive_prewarm");
    for (unsigned i = 0; i < POOL_WARM_CLASSES; i++) {
        hak_stats_begin(w, NULL);
        hak_stats_number(w, "size", warm_classes[i].size);
        hak_stats_number(w, "blocks", HAK_LOAD_RELAXED(&adaptive[i]));
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
    hak_stats_end(w);
}

const struct hak_frontend hak_frontend_pool = {
    .name = "pool",
    .min_stride = HAK_POOL_MIN,
    .max_stride = HAK_POOL_MAX,
    .is_on = is_on,
    .init = init,
    .slab_acquire = slab_acquire,
    .bin_capacity = pool_bin_capacity,
    .flush = flush_reserve,
    .purge_tick = purge_tick,
    .heap_start = prewarm_pool,
    .heap_end = end_pool,
    .stats = write_reserve_stats,
};
