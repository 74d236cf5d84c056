/* SPDX-License-Identifier: MIT */
#include "core/parts/sparse.h"

#include <string.h>

#include "core/heap/decay.h"
#include "unit.h"

#define SIZE 480     /* has a bitmap in every build */
#define BLOCKS 1000u /* of several slabs */
#define LIVE_EACH 33u

static struct hak_heap *t;
static unsigned char *blocks[BLOCKS];

static bool is_purged_here(void)
{
    return !HAK_BLOCKS_ARE_MARKED && !hak_parts_has_header(hak_class_of(SIZE));
}

static bool lives(unsigned i)
{
    return i % LIVE_EACH == 0;
}

static void allocate_all(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!blocks[i] && !(blocks[i] = hak_malloc(SIZE)))
            fail();
        memset(blocks[i], (int)i % 251, SIZE);
    }
}

static void check_live(void)
{
    for (unsigned i = 0; i < BLOCKS; i += LIVE_EACH)
        for (unsigned at = 0; at < SIZE; at++)
            assert_int_equal(blocks[i][at], i % 251);
}

/* Blocks between live ones: each page of a slab has some free ones, most system pages have no other. */
static void free_most(void)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i] && !lives(i)) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
}

static void pass(uint64_t ms)
{
    fake_os_pass(ms);
    HAK_STORE_RELAXED(&hak_awake_ms, hak_clock_ms());
}

static void start(const char *settings)
{
    t = unit_init_heap(settings);
    pass(1000);
    allocate_all();
}

/* Free blocks that no request takes for a while, if the build purges inside slabs. */
static void start_idle(void)
{
    start(NULL);
    if (!is_purged_here())
        skip();
    free_most();
    hak_bins_flush(t);
    pass(2000);
}

static void start_just_now(void)
{
    start(NULL);
    if (!is_purged_here() || strcmp(hak_parts.backend->name, "shared_pool"))
        skip();
}

static void *allocate_in_thread(void *context)
{
    allocate_all();
    return context;
}

/* The thread of all slabs has ended. With lists, blocks that other threads freed are in no bitmap. */
static void start_unowned(void)
{
    t = unit_init_heap(NULL);
    unit_in_thread(allocate_in_thread, NULL);
    if (!HAK_BITMAP_ALL || !is_purged_here() || strcmp(hak_parts.backend->name, "shared_pool"))
        skip();
}

/* Pages come back with their blocks. */
static void check_and_use_all(void)
{
    check_live();
    allocate_all();
    check_live();
    unit_census();
}

static struct hak_slab *slab_of_live(void)
{
    return hak_space_slab(blocks[LIVE_EACH]);
}

TEST(pages_go_once_when_no_block_was_taken_for_a_while)
{
    start(NULL);
    struct hak_slab *slab = slab_of_live();
    free_most();
    hak_bins_flush(t);
    assert_int_equal(hak_slab_state(slab), HAK_SLAB_ACTIVE);
    assert_false(hak_sparse_is_due(slab, false));
    pass(2000);
    assert_int_equal(hak_sparse_is_due(slab, false), is_purged_here());
    if (!is_purged_here())
        return;
    uint64_t calls = unit_cause_calls(HAK_CAUSE_partial_release);
    size_t bytes = hak_sparse_purge(slab);
    assert_true(bytes >= HAK_PAGE / 2 && bytes < HAK_PAGE);
    assert_true(unit_cause_calls(HAK_CAUSE_partial_release) > calls);
    assert_false(hak_sparse_is_due(slab, false));
    check_and_use_all();
    free_most();
    hak_bins_flush(t);
    assert_false(hak_sparse_is_due(slab, false)); /* blocks were taken just now, */
    HAK_STORE_RELAXED(&hak_awake_ms, hak_clock_ms() - 250);
    assert_false(hak_sparse_is_due(slab, false)); /* and another thread stored its earlier time */
    pass(2000);
    assert_true(hak_sparse_is_due(slab, false));
}

/* Those that it gives up are without an owner. */
TEST(scans_and_ticks_purge_what_a_thread_uses_little)
{
    start(NULL);
    if (!is_purged_here() || strcmp(hak_parts.backend->name, "shared_pool"))
        skip();
    free_most();
    hak_bins_flush(t);
    uint64_t calls = unit_cause_calls(HAK_CAUSE_partial_release);
    for (unsigned i = 0; i < 3 * HAK_NCLASSES; i++) {
        pass(100);
        hak_free(hak_malloc(SIZE)); /* the class is in use: its slabs stay the thread's */
        hak_bins_flush(t);
        hak_bins_scan(hak_clock_ms());
        unit_tick();
    }
    assert_true(unit_cause_calls(HAK_CAUSE_partial_release) > calls);
    check_and_use_all();
}

TEST(ticks_purge_slabs_without_an_owner)
{
    start_unowned();
    assert_int_equal(hak_slab_state(slab_of_live()), HAK_SLAB_FULL);
    free_most();
    hak_bins_flush(t); /* as remote blocks */
    assert_int_equal(hak_slab_state(slab_of_live()), HAK_SLAB_PARTIAL);
    uint64_t calls = unit_cause_calls(HAK_CAUSE_partial_release);
    for (unsigned i = 0; i < 20; i++) {
        pass(200);
        unit_tick();
    }
    assert_true(unit_cause_calls(HAK_CAUSE_partial_release) > calls);
    assert_int_equal(hak_slab_state(slab_of_live()), HAK_SLAB_PARTIAL);
    check_and_use_all();
}

TEST(a_complete_sweep_visits_all_slabs_whatever_it_purges)
{
    start_unowned();
    struct hak_slab *first = hak_space_slab(blocks[0]);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (lives(i) && hak_space_slab(blocks[i]) == first) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
    free_most();
    hak_bins_flush(t);
    pass(2000);
    hak_parts.backend->flush();
    assert_int_not_equal(hak_slab_state(first), HAK_SLAB_PARTIAL);
}

/* Slabs of the calling thread and of nobody, whenever a block was taken last. */
static const struct {
    void (*start)(void);
} owners[] = {{start_unowned}, {start_just_now}};

TEST_EACH(a_trim_purges_at_once, owners)
{
    row->start();
    free_most();
    uint64_t calls = unit_cause_calls(HAK_CAUSE_partial_release);
    assert_true(hak_trim(0) >= BLOCKS / LIVE_EACH * HAK_PAGE / LIVE_EACH);
    assert_true(unit_cause_calls(HAK_CAUSE_partial_release) > calls);
    assert_int_equal(hak_trim(0), 0);
    check_and_use_all();
}

/* As the background thread's ticks do in a sleep: the program's time stands still. */
TEST(in_a_sleep_a_tick_purges_without_a_call)
{
    start_unowned();
    free_most();
    hak_bins_flush(t);
    fake_os_pass(500);
    uint64_t now = hak_clock_ms(), calls = unit_cause_calls(HAK_CAUSE_partial_release);
    HAK_STORE_RELAXED(&hak_slept_ms, now);
    hak_parts.backend->purge_tick(now);
    assert_true(unit_cause_calls(HAK_CAUSE_partial_release) > calls);
    check_and_use_all();
}

TEST(a_setting_keeps_the_pages)
{
    start("HAKMEM_TINY_SS_PARTIAL=0");
    free_most();
    hak_bins_flush(t);
    pass(2000);
    assert_false(hak_sparse_is_due(slab_of_live(), false));
}

TEST(no_part_of_a_longer_page_is_named)
{
    start_idle();
    fake_os_long_pages(HAK_PAGE / 8);
    assert_true(hak_sparse_purge(slab_of_live()) > 0);
    check_live();
    fake_os_long_pages(HAK_PAGE);
    assert_int_equal(hak_sparse_purge(slab_of_live()), 0);
    check_live();
}

TEST(what_the_kernel_refuses_stays_whole)
{
    start_idle();
    fake_os_vector(ENOSYS, 0);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    hak_sparse_purge(slab_of_live());
    fake_os_allow();
    check_and_use_all();
}
