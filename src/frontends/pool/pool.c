/* SPDX-License-Identifier: MIT
 * The pool frontend: blocks of 8 to 52 KiB, in slabs of the span backend. The pool says how much is mapped at once
 * where no pages are free, and prewarms: it fills bins when a thread starts, with a fixed number of blocks or as many
 * as earlier threads used. */
#include "core/heap/refill.h"
#include "core/pages/page_heap.h"
#include "core/plugin.h"

#define BIN_BYTES (128 * HAK_KIB)
#define WARM_CLASSES 7

extern const struct hak_frontend hak_frontend_pool;

/* The original's classes and its numbers of prewarmed blocks: fixed, and the initial value of the adaptive number. */
static const struct {
    uint32_t size;
    uint8_t fixed, adaptive;
} warm_classes[WARM_CLASSES] = {
    {8 * 1024, 16, 8}, {16 * 1024, 16, 8}, {24 * 1024, 12, 4}, {32 * 1024, 8, 4},
    {40 * 1024, 8, 2}, {48 * 1024, 4, 2},  {52 * 1024, 4, 2},
};

enum { PREWARM_OFF, PREWARM_FIXED, PREWARM_ADAPTIVE };

static _Atomic(uint32_t) adaptive[WARM_CLASSES]; /* blocks for the next thread */

static _Atomic(uint64_t) batches, batch_bytes;

/* For each prewarmed class: the bin's refills and first block after prewarming. While both are unchanged, no block was
 * used. */
static HAK_THREAD_LOCAL struct warm_bin {
    uint32_t refills;
    const void *first;
} warm_bins[WARM_CLASSES];

static bool is_on(const struct hak_option_values *options)
{
    return options->pool_tls;
}

static int init(const struct hak_option_values *options)
{
    (void)options;
    for (unsigned i = 0; i < WARM_CLASSES; i++)
        HAK_STORE_RELAXED(&adaptive[i], warm_classes[i].adaptive);
    return 0;
}

/* A batch, each twice as long as the one before. */
static size_t batch_pages(const struct hak_page_request *r)
{
    const struct hak_option_values *o = &hak_options;
    uint64_t doubled = hak_min(HAK_ADD_RELAXED(&batches, 1), o->pool_growth);
    size_t bytes = hak_min(o->pool_mb_init << doubled, o->pool_mb_max) * HAK_MIB;
    (void)r;
    HAK_ADD_RELAXED(&batch_bytes, bytes);
    return bytes / HAK_PAGE;
}

static uint32_t pool_bin_capacity(unsigned cls)
{
    return (uint32_t)hak_max(2, BIN_BYTES / hak_strides[cls]);
}

/* --- prewarm -------------------------------------------------------------------------------------------- */

/* Another frontend may have taken its class. */
static bool is_own_class(unsigned i)
{
    HAK_ASSERT(i < WARM_CLASSES);
    return hak_parts.by_class[hak_class_of(warm_classes[i].size)] == &hak_frontend_pool;
}

/* Touches the pages of a block, so that its first use causes no page fault. Leaves the words that a free block
 * carries. */
static void touch(unsigned cls, void *block)
{
    for (size_t i = 2 * sizeof(void *); i < hak_strides[cls]; i += HAK_SYSTEM_PAGE)
        ((volatile char *)block)[i] = 0;
}

static void prewarm(struct hak_heap *heap, unsigned i, uint32_t blocks)
{
    unsigned cls = hak_class_of(warm_classes[i].size);
    hak_bin_prewarm(heap, cls, blocks);
    hak_cache_each(cls, touch);
    warm_bins[i] = (struct warm_bin){heap->bins[cls].refills, hak_cache_first(cls)};
}

static void prewarm_pool(struct hak_heap *heap)
{
    uint32_t mode = hak_options.pool_prewarm;
    bool warms = mode != PREWARM_OFF && is_on(&hak_options);
    for (unsigned i = 0; warms && i < WARM_CLASSES; i++)
        if (is_own_class(i))
            prewarm(heap, i, mode == PREWARM_FIXED ? warm_classes[i].fixed : HAK_LOAD_RELAXED(&adaptive[i]));
}

/* A class that ran out gets more blocks for the next thread; a class that was not used gets fewer. */
static void adapt(const struct hak_heap *heap, unsigned i)
{
    unsigned cls = hak_class_of(warm_classes[i].size);
    uint32_t now = HAK_LOAD_RELAXED(&adaptive[i]);
    bool ran_out = heap->bins[cls].refills != warm_bins[i].refills,
         unused = !ran_out && hak_cache_first(cls) == warm_bins[i].first;
    if (ran_out && now < warm_classes[i].fixed)
        HAK_STORE_RELAXED(&adaptive[i], now + 1);
    else if (unused && now > 0)
        HAK_STORE_RELAXED(&adaptive[i], now - 1);
}

static void end_pool(struct hak_heap *heap)
{
    bool adapts = hak_options.pool_prewarm == PREWARM_ADAPTIVE && is_on(&hak_options) && heap == hak_self.heap;
    for (unsigned i = 0; adapts && i < WARM_CLASSES; i++)
        if (is_own_class(i))
            adapt(heap, i);
}

/* --- the rest -------------------------------------------------------------------------------------------- */

static void write_batch_stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "pool");
    hak_stats_number(w, "chunks_mapped", HAK_LOAD_RELAXED(&batches));
    hak_stats_number(w, "chunk_bytes", HAK_LOAD_RELAXED(&batch_bytes));
    hak_stats_begin_array(w, "adaptive_prewarm");
    for (unsigned i = 0; i < WARM_CLASSES; i++) {
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
    .map_pages = batch_pages,
    .bin_capacity = pool_bin_capacity,
    .heap_start = prewarm_pool,
    .heap_end = end_pool,
    .stats = write_batch_stats,
};
