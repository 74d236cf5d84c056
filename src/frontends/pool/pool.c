/* SPDX-License-Identifier: MIT
 * The pool frontend: 8 to 52 KiB from thread-local arenas. Its blocks come from the same bins, and are freed
 * by the same single load of a page tag, as tiny ones; what is its own is where slabs come from, and prewarm:
 * blocks made ready when a thread starts, a fixed number or as many as earlier threads used. */
#include "arena.h"
#include "core/dispatch.h"

#define BIN_BYTES (128 * HAK_KIB)

/* The original's classes and its blocks ahead: fixed, and where the adaptive number starts. */
static const struct {
    uint32_t size;
    uint8_t fixed, adaptive;
} warm_classes[] = {
    {8 * 1024, 16, 8}, {16 * 1024, 16, 8}, {24 * 1024, 12, 4}, {32 * 1024, 8, 4},
    {40 * 1024, 8, 2}, {48 * 1024, 4, 2},  {52 * 1024, 4, 2},
};
#define WARM_CLASSES (sizeof warm_classes / sizeof warm_classes[0])

enum { PREWARM_OFF, PREWARM_FIXED, PREWARM_ADAPTIVE };

static _Atomic(uint32_t) adaptive[WARM_CLASSES]; /* blocks for the next thread */

static int init(const struct hak_options *options, unsigned place)
{
    for (unsigned i = 0; i < WARM_CLASSES; i++)
        atomic_store_explicit(&adaptive[i], warm_classes[i].adaptive, memory_order_relaxed);
    return hak_arena_init(options, place);
}

static struct hak_slab *slab_acquire(struct hak_thread *t, unsigned bin)
{
    struct hak_slab *slab = hak_dispatch.backend->adopt(t, bin);
    if (slab)
        return slab;
    slab = hak_arena_take(t, hak_slab_pages[bin]);
    if (slab)
        hak_slab_format(slab, bin, t);
    return slab;
}

static void slab_release(struct hak_slab *slab)
{
    hak_arena_put(slab);
}

static uint32_t bin_limit(unsigned bin)
{
    return (uint32_t)hak_max(2, BIN_BYTES / hak_strides[bin]);
}

/* --- prewarm -------------------------------------------------------------------------------------------- */

/* Touches the pages of the bin's blocks, so that their first use takes no fault either. */
static void touch_bin(unsigned bin)
{
    for (void *block = hak_self.head[bin]; block; block = hak_next_load(block))
        for (size_t i = HAK_SYSTEM_PAGE; i < hak_strides[bin]; i += HAK_SYSTEM_PAGE)
            ((volatile char *)block)[i] = 0;
}

static void thread_start(struct hak_thread *t)
{
    uint32_t mode = hak_dispatch.options.pool_prewarm;
    if (mode == PREWARM_OFF || !hak_dispatch.options.pool_tls)
        return;
    for (unsigned i = 0; i < WARM_CLASSES; i++) {
        unsigned bin = hak_class_of(warm_classes[i].size);
        uint32_t blocks = mode == PREWARM_FIXED ? warm_classes[i].fixed
                                                : atomic_load_explicit(&adaptive[i], memory_order_relaxed);
        hak_bin_prewarm(t, bin, blocks);
        touch_bin(bin);
    }
}

/* A class that ran out gets more blocks for the next thread, one that was not used gets fewer. */
static void thread_ending(struct hak_thread *t)
{
    if (hak_dispatch.options.pool_prewarm != PREWARM_ADAPTIVE)
        return;
    for (unsigned i = 0; i < WARM_CLASSES; i++) {
        const struct hak_bin *b = &t->bins[hak_class_of(warm_classes[i].size)];
        uint32_t now = atomic_load_explicit(&adaptive[i], memory_order_relaxed), then = now;
        if (b->refilled && now < warm_classes[i].fixed)
            then = now + 1;
        else if (b->untouched == hak_self.head[hak_class_of(warm_classes[i].size)] && now > 0)
            then = now - 1;
        atomic_store_explicit(&adaptive[i], then, memory_order_relaxed);
    }
}

static void thread_end(struct hak_thread *t)
{
    hak_arena_abandon(t);
}

/* --- the rest -------------------------------------------------------------------------------------------- */

static size_t trim(size_t *keep)
{
    (void)keep; /* what is free goes back to the backend, or to the system; core keeps `keep` elsewhere */
    return hak_arena_clean(UINT64_MAX, HAK_CAUSE_trim);
}

/* After a sleep, what a parked thread had that was broken up just now is idle, too. */
static bool age(uint64_t now_ms)
{
    static _Atomic(uint64_t) last_ms;
    uint64_t delay = hak_purge_delay_ms();
    bool slept = hak_has_slept(&last_ms, now_ms);
    if (slept || now_ms >= delay)
        hak_arena_clean(slept ? now_ms : now_ms - delay, HAK_CAUSE_purge);
    return false;
}

static void stats(struct hak_stats_writer *w)
{
    hak_stats_begin(w, "pool");
    hak_arena_stats(w);
    hak_stats_begin_array(w, "adaptive_prewarm");
    for (unsigned i = 0; i < WARM_CLASSES; i++) {
        hak_stats_begin(w, NULL);
        hak_stats_number(w, "size", warm_classes[i].size);
        hak_stats_number(w, "blocks", atomic_load_explicit(&adaptive[i], memory_order_relaxed));
        hak_stats_end(w);
    }
    hak_stats_end_array(w);
    hak_stats_end(w);
}

const struct hak_frontend hak_frontend_pool = {
    .name = "pool",
    .min_stride = 8192,
    .max_stride = HAK_SMALL_MAX,
    .init = init,
    .slab_acquire = slab_acquire,
    .slab_release = slab_release,
    .bin_limit = bin_limit,
    .trim = trim,
    .age = age,
    .thread_start = thread_start,
    .thread_ending = thread_ending,
    .thread_end = thread_end,
    .fork_prepare = hak_arena_fork_prepare,
    .fork_done = hak_arena_fork_done,
    .stats = stats,
};
