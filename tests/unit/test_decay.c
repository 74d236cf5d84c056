/* SPDX-License-Identifier: MIT */
#include "core/heap/decay.h"

#include "unit.h"

#define SIZE 2000 /* has no header in any build: remote blocks return to their slabs */

static struct hak_heap *t;
static unsigned cls;

static void start(const char *settings)
{
    t = unit_init_heap(settings);
    cls = hak_class_of(SIZE);
}

TEST(draining_gives_up_every_slab_without_live_blocks)
{
    start(NULL);
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        unit_free_blocks(unit_blocks(hak_class_usable(b), 50));
    void *live = hak_malloc(SIZE);
    assert_true(t->slabs > 10);
    hak_bins_flush(t);
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        assert_null(hak_cache_first(b));
    struct hak_census c =
        unit_census(); /* when the tag table grows, a slab loses its tag, and its blocks are freed as remote ones */
    assert_int_equal(c.used - c.remote, 1);
    assert_true(t->slabs <= 1);
    assert_int_equal(unit_pages_in_use(&c), hak_slab_pages[cls]);
    hak_free(live);
}

static uint64_t now = 3600000;

/* Scans each class once. */
static void look_round(void)
{
    uint64_t step = hak_max(1, hak_options.purge_delay_ms / HAK_NCLASSES);
    for (unsigned i = 0; i < HAK_NCLASSES; i++)
        hak_bins_scan(now += step);
}

TEST(what_needs_no_refill_leaves_bin_remote_cache_and_thread)
{
    start(NULL);
    hak_bins_scan(now);
    void *live = hak_malloc(SIZE);
    unit_free_blocks(unit_blocks(SIZE, 10));
    look_round(); /* it was refilled */
    size_t before = unit_bin_length(cls);
    assert_true(before >= 10);
    look_round();
    assert_true(unit_bin_length(cls) <= before / 2 + 1);
    assert_true(t->slabs > 0);
    for (size_t left = before; left; left /= 2)
        look_round();
    assert_null(hak_cache_first(cls));
    assert_int_equal(t->bins[cls].remote_count, 0);
    assert_int_equal(t->slabs, 0);
    assert_int_equal(unit_census().used, 1);
    hak_free(live);
    look_round();
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote); /* the block returned to its slab */
}

/* With a list, the blocks then form a circle. */
static void free_twice(void)
{
    start(NULL);
    hak_bins_scan(now);
    void *first = hak_malloc(SIZE), *second = hak_malloc(SIZE);
    hak_free(first);
    hak_free(second);
    hak_free(first);
}

TEST(looks_and_counts_end_where_a_block_was_freed_twice)
{
    assert_dies(
        {
            free_twice();
            for (unsigned i = 0; i < 4; i++)
                look_round();
        },
        "double free");
    assert_dies(free_twice(); hak_bins_free_bytes(t); hak_log_fatal("counted"), HAK_HARDENED ? "" : "counted");
}

TEST(what_needs_refills_stays)
{
    start(NULL);
    hak_bins_scan(now);
    for (unsigned i = 0; i < 10; i++) {
        hak_bins_flush(t);
        hak_free(hak_malloc(SIZE));
        size_t before = unit_bin_length(cls);
        look_round();
        assert_int_equal(unit_bin_length(cls), before);
    }
}

/* Little time means few scans, and after a long rest each class is scanned once at most. */
TEST(looks_go_with_the_clock)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000");
    if (hak_parts.release->at_once)
        skip();
    hak_bins_scan(7200000);
    unsigned next = t->scan_next;
    hak_bins_scan(7200001);
    assert_int_equal(t->scan_next, next);
    hak_bins_scan(7200000 + 3600000 / HAK_NCLASSES);
    assert_int_equal(t->scan_next, (next + 1) % HAK_NCLASSES);
    hak_bins_scan(7100000); /* a clock that goes back */
    assert_int_equal(t->scan_next, (next + 1) % HAK_NCLASSES);
}

TEST(free_bytes_are_those_of_all_bins)
{
    start(NULL);
    size_t bytes = 0;
    unit_free_blocks(unit_blocks(1 + sizeof(void *), 3)); /* the smallest class, too */
    unit_free_blocks(unit_blocks(SIZE, 3));
    for (unsigned b = 0; b < HAK_NCLASSES; b++)
        bytes += unit_bin_length(b) * hak_class_usable(b);
    assert_true(bytes >= 3 * (hak_class_usable(0) + SIZE));
    assert_int_equal(hak_bins_free_bytes(t), bytes);
}
