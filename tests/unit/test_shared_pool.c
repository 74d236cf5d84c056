/* SPDX-License-Identifier: MIT
 * The stages of acquire, in their order, each provoked and seen in its counter; and how memory returns to the
 * kernel. */
#include <stdio.h>
#include <string.h>

#include "core/heap/drain.h"
#include "core/heap/remote_cache.h"
#include "core/os/huge_page.h"
#include "core/parts/purge.h"
#include "core/plugin.h"
#include "unit.h"

extern const struct hak_backend hak_backend_shared_pool;

static const struct hak_backend *pool = &hak_backend_shared_pool;
static struct hak_heap *t;
static unsigned cls, other_bin, long_bin; /* two classes of one-page slabs, and one of longer ones */

static void start(const char *settings)
{
    char with_one_hot_slab[256];
    snprintf(with_one_hot_slab, sizeof with_one_hot_slab, "HAKMEM_SS_HOT_SLABS=1 %s", settings ? settings : "");
    t = unit_init_heap(with_one_hot_slab);
    unsigned plain = hak_class_of(2000); /* without headers in any build */
    for (cls = plain; hak_slab_pages[cls] != 1; cls--)
        ;
    for (other_bin = cls - 1; hak_slab_pages[other_bin] != 1; other_bin--)
        ;
    for (long_bin = plain; hak_slab_pages[long_bin] == 1; long_bin++)
        ;
    assert_false(hak_class_has_header(other_bin));
}

static struct hak_slab *acquire(unsigned b)
{
    struct hak_slab *slab = pool->acquire_slab(t, b, HAK_ACQUIRE_ANY);
    assert_non_null(slab);
    assert_int_equal(hak_slab_state(slab), HAK_SLAB_ACTIVE);
    assert_int_equal(slab->cls, b);
    assert_int_equal(slab->pages, hak_slab_pages[b]);
    return slab;
}

static void release(struct hak_slab *slab)
{
    hak_slab_empty(slab);
    pool->release_slab(slab);
}

/* One block is allocated, the rest may be adopted. Returns the block. */
static void *make_partial(struct hak_slab *slab)
{
    void *block = hak_slab_take(slab, 1).head;
    assert_int_equal(hak_slab_disown(slab), HAK_SLAB_PARTIAL);
    pool->release_slab(slab);
    return block;
}

static const char *const stage_names[] = {"hot", "partial", "warm", "empty", "unused", "drain", "lru", "map"};
static uint64_t before[COUNT(stage_names)];

static void check(void)
{
    for (unsigned i = 0; i < COUNT(stage_names); i++)
        before[i] = unit_stat("stages", stage_names[i]);
}

/* Since look(), only this stage served, once. */
static void assert_served(const char *stage)
{
    for (unsigned i = 0; i < COUNT(stage_names); i++)
        if (unit_stat("stages", stage_names[i]) != before[i] + !strcmp(stage_names[i], stage))
            fail_msg("stage %s served %u instead of %s", stage_names[i],
                     (unsigned)(unit_stat("stages", stage_names[i]) - before[i]), stage);
    check();
}

/* This stage serves, with this slab if it is not NULL. */
static void expect_stage(const char *stage, unsigned b, const struct hak_slab *wanted)
{
    struct hak_slab *slab = acquire(b);
    assert_served(stage);
    if (wanted)
        assert_ptr_equal(slab, wanted);
}

/* Takes all pages of superslabs in use, so that stage unused has nothing. Returns the first page of a further one. */
static struct hak_slab *use_up(void)
{
    bool zeroed;
    struct hak_slab *run;
    size_t first = unit_space().handed_out;
    uint64_t hits = unit_stat("lru", "hits");
    do {
        run = unit_run(1, 1, &zeroed);
        assert_non_null(run);
    } while (unit_space().handed_out == first && unit_stat("lru", "hits") == hits);
    return run;
}

/* A superslab that is wholly free, in the cache, and clean. */
static void cache_a_clean_one(void)
{
    unit_put_run(use_up());
    fake_os_pass(4 * hak_options.purge_delay_ms + 1); /* nothing is wanted any more */
    unit_tick();
    unit_tick(); /* the first check records since when pages are idle */
    assert_int_equal(unit_stat("page_heap", "dirty_bytes"), 0);
}

/* --- stages ---------------------------------------------------------------------------------------------- */

/* The slab that was put last serves first, whatever its class was; then dirty pages. */
TEST(empty_of_the_same_length_before_partial_before_pages)
{
    start(NULL);
    struct hak_slab *partial = acquire(cls), *a = acquire(cls), *b = acquire(cls), *c = acquire(cls);
    struct hak_slab *d = acquire(long_bin);
    make_partial(partial);
    release(d);
    release(a); /* dirty */
    release(b);
    check();
    expect_stage("hot", cls, b);
    release(c);
    expect_stage("warm", other_bin, c);
    expect_stage("partial", cls, partial);
    expect_stage("empty", cls, a);
    expect_stage("unused", cls, NULL);
}

TEST(drain_publishes_what_this_thread_holds_for_others)
{
    start("HAKMEM_SUPERSLAB_MAX_CACHED=0");
    struct hak_slab *slab = acquire(cls);
    struct hak_chain last = {0};
    while (hak_slab_has_free(slab))
        last = hak_slab_take(slab, 1);
    assert_true(hak_slab_retire(slab)); /* FULL: on no list */
    unit_put_run(use_up());             /* it goes, and is wholly free */
    hak_mark_renew(last.head, cls);
    hak_remote_cache_put(t, cls, last.head);
    assert_int_equal(hak_slab_state(slab), HAK_SLAB_FULL); /* the block waits with the thread */
    check();
    expect_stage("drain", cls, slab);
}

TEST(lru_before_map)
{
    start(NULL);
    acquire(cls);
    cache_a_clean_one();
    uint64_t hits = unit_stat("lru", "hits");
    check();
    expect_stage("lru", cls, NULL);
    assert_int_equal(unit_stat("lru", "hits"), hits + 1);
    use_up();
    acquire(cls); /* beside the page that use_up took */
    use_up();
    cache_a_clean_one();
    hak_purge_all(0);
    assert_int_equal(unit_stat("lru", "cached"), 0);
    hits = unit_stat("lru", "hits");
    check();
    expect_stage("lru", cls, NULL); /* it left the cache, but is there */
    assert_int_equal(unit_stat("lru", "hits"), hits);
    for (unsigned pages = 1; pages < HAK_SUPERSLAB_PAGES; pages++)
        acquire(cls);
    check();
    expect_stage("map", cls, NULL);
}

/* The last slab is the first of its superslab. */
static void make_large_heap(bool touch)
{
    start(NULL);
    do {
        assert_int_equal(unit_cause_calls(HAK_CAUSE_huge_page), 0);
        struct hak_slab *slab = acquire(cls);
        if (touch)
            memset(slab->base, 1, HAK_PAGE);
    } while (unit_space().handed_out <= 16 * HAK_MIB);
}

TEST(a_large_heap_gets_huge_pages)
{
    make_large_heap(true);
    assert_int_equal(fake_os_huge_bytes(), HAK_SUPERSLAB >= HAK_HUGE_PAGE ? HAK_SUPERSLAB : 0);
}

TEST(a_sparse_heap_gets_none)
{
    make_large_heap(false);
    assert_int_equal(unit_looks(), HAK_SUPERSLAB >= HAK_HUGE_PAGE);
    assert_int_equal(fake_os_huge_bytes(), 0);
}

TEST(no_stage_without_memory)
{
    start(NULL);
    fake_os_refuse_any(1, ENOMEM, true);
    assert_null(pool->acquire_slab(t, cls, HAK_ACQUIRE_ANY));
    bool zeroed;
    assert_null(unit_run(1, 1, &zeroed));
    assert_null(unit_run(1000, 1, &zeroed));
    fake_os_allow();
    acquire(cls);
    assert_non_null(unit_run(1, 1, &zeroed));
    assert_non_null(unit_run(1000, 1, &zeroed));
}

/* --- PARTIAL slabs --------------------------------------------------------------------------------------- */

/* The last block comes back between the transition and the list: the next request gets the slab. */
TEST(what_is_free_when_published_is_found)
{
    start(NULL);
    struct hak_slab *slab = acquire(cls);
    struct hak_chain block = hak_slab_take(slab, 1);
    assert_int_equal(hak_slab_disown(slab), HAK_SLAB_PARTIAL);
    assert_int_equal(hak_slab_remote_put(slab, block), HAK_REMOTE_EMPTY);
    pool->all_back(slab, cls); /* it stands on no list yet */
    pool->release_slab(slab);
    assert_ptr_equal(pool->acquire_slab(t, cls, HAK_ACQUIRE_PARTIAL), slab);
    assert_int_equal(slab->used, 0);
}

TEST(a_reaped_slab_is_empty_and_used_again)
{
    start(NULL);
    unit_sweep(); /* hot slabs will not cool down meanwhile */
    acquire(cls); /* the superslab stays in use */
    struct hak_slab *slab = acquire(other_bin);
    uint64_t reaped = unit_transitions(HAK_SLAB_PARTIAL, HAK_SLAB_ACTIVE);
    void *block = make_partial(slab);
    hak_next_store(block, NULL);
    hak_drain(NULL, block);
    unit_sweep();
    assert_int_equal(hak_slab_state(slab), HAK_SLAB_EMPTY);
    assert_int_equal(unit_transitions(HAK_SLAB_PARTIAL, HAK_SLAB_ACTIVE), reaped + 1);
    assert_int_equal(unit_stat("shared_pool", "partial_slabs"), 0);
    assert_ptr_equal(acquire(other_bin), slab);
}

/* --- memory goes back --------------------------------------------------------------------------------------- */

static uint64_t releases(enum hak_cause cause)
{
    return hak_ledger[cause][HAK_OS_madvise].calls + hak_ledger[cause][HAK_OS_process_madvise].calls;
}

TEST(partial_release_at_every_so_many_empties)
{
    start("HAKMEM_PURGE_DELAY_MS=0 HAKMEM_TINY_SS_PARTIAL_INTERVAL=3");
    unit_needs_delay();
    enum { N = 8 };
    struct hak_slab *slabs[N];
    for (unsigned i = 0; i < N; i++)
        slabs[i] = acquire(cls);
    for (unsigned i = 0; i < N; i++) {
        uint64_t empties = i; /* the last one is hot */
        release(slabs[i]);
        assert_int_equal(unit_transitions(HAK_SLAB_EMPTY, HAK_SLAB_UNUSED), empties);
        assert_int_equal(releases(HAK_CAUSE_partial_release), empties / 3);
    }
    assert_int_equal(unit_stat("page_heap", "dirty_bytes"), (N - 1) % 3 * HAK_PAGE);
}

TEST(hot_slabs_cool_down)
{
    start("HAKMEM_PURGE_DELAY_MS=500");
    acquire(other_bin);
    release(acquire(cls));
    unit_tick();
    fake_os_pass(1000);
    unit_tick();
    assert_int_equal(unit_transitions(HAK_SLAB_EMPTY, HAK_SLAB_UNUSED), 1);
}

/* --- prefault ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *settings;
    bool refused;
    uint64_t touched;
} prefaults[] = {
    {"HAKMEM_SS_PREFAULT=1", false, 0},
    {"HAKMEM_SS_PREFAULT=1", true, HAK_SUPERSLAB / 4096}, /* an older kernel */
    {"HAKMEM_SS_PREFAULT=1 HAKMEM_NO_FALLBACK_PREFAULT=1", true, 0},
};

TEST_EACH(prefault_asks_the_kernel_or_touches, prefaults)
{
    start(row->settings);
    if (row->refused)
        fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    acquire(cls);
    assert_int_equal(hak_ledger[HAK_CAUSE_prefault][HAK_OS_madvise].calls, 1);
    assert_int_equal(unit_stat("shared_pool", "prefault_touched"), row->touched);
}
