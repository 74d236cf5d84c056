/* SPDX-License-Identifier: MIT
 * The pool frontend and its reserves (reserve.c). */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/heap/bins.h"
#include "core/pages/budget.h"
#include "core/plugin.h"
#include "frontends/pool/reserve.h"

#include "unit.h"

static uint64_t pool(const char *key)
{
    return unit_stat("pool", key);
}

TEST(it_serves_8_to_52_kib)
{
    unit_init(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (hak_strides[cls] >= 8192)
            assert_string_equal(hak_parts.by_class[cls]->name, "pool");
        else
            assert_string_not_equal(hak_parts.by_class[cls]->name, "pool");
}

/* A slab of the largest class, from the reserve. */
static struct hak_slab *acquire(void)
{
    return hak_parts.by_class[HAK_NCLASSES - 1]->slab_acquire(unit_thread(), HAK_NCLASSES - 1);
}

static void release(struct hak_slab *slab)
{
    hak_slab_empty(slab);
    hak_parts.backend->release_slab(slab);
}

static uint64_t reserved(void)
{
    return pool("reserved_bytes");
}

/* Slabs until the next batch. */
static void use_up_batch(void)
{
    uint64_t batches = pool("chunks_mapped");
    for (unsigned i = 0; pool("chunks_mapped") == batches; i++) {
        assert_true(i < 1000);
        assert_non_null(acquire());
    }
}

enum { BATCHES = 5 };

static const struct {
    const char *settings;
    uint64_t mib[BATCHES];
} growths[] = {
    {"HAKMEM_POOL_TLS_ARENA_MB_INIT=1 HAKMEM_POOL_TLS_ARENA_MB_MAX=8 HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS=8",
     {1, 2, 4, 8, 8}},
    {"HAKMEM_POOL_TLS_ARENA_MB_INIT=1 HAKMEM_POOL_TLS_ARENA_MB_MAX=16 HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS=0",
     {1, 1, 1, 1, 1}},
};

TEST_EACH(batches_double_up_to_the_largest, growths)
{
    unit_init(row->settings);
    for (unsigned i = 0; i < BATCHES; i++) {
        uint64_t before = pool("chunk_bytes");
        use_up_batch();
        assert_int_equal(pool("chunk_bytes") - before, row->mib[i] * HAK_MIB);
        assert_int_equal(pool("chunks"), 1);
    }
}

TEST(a_thread_that_begins_has_small_batches_again)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=1 HAKMEM_POOL_TLS_PREWARM=off");
    use_up_batch();
    use_up_batch();
    uint64_t before = pool("chunk_bytes");
    hak_reserve_end(unit_thread());
    assert_int_equal(reserved(), 0);
    fake_os_pass(hak_options.purge_delay_ms + 1);
    hak_purge_all(0); /* no dirty pages */
    use_up_batch();
    assert_int_equal(pool("chunk_bytes") - before, HAK_MIB);
}

TEST(a_slab_is_cut_without_a_lock)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=4 HAKMEM_POOL_TLS_ARENA_MB_MAX=4");
    unsigned pages = hak_slab_pages[HAK_NCLASSES - 1], n = 4 * HAK_MIB / (pages * HAK_PAGE);
    use_up_batch();
    uint64_t rest = reserved(), locks = pool("lock_taken"), heap = unit_stat("page_heap", "lock_taken");
    uint64_t asked = pool("lock_taken") - locks, heap_asked = unit_stat("page_heap", "lock_taken") - heap;
    locks = pool("lock_taken"), heap = unit_stat("page_heap", "lock_taken");
    const char *last = NULL;
    for (unsigned i = 1; i < n; i++) {
        struct hak_slab *slab = acquire();
        assert_non_null(slab);
        assert_int_equal(hak_slab_state(slab), HAK_SLAB_ACTIVE);
        assert_int_equal(slab->pages, pages);
        assert_true(!last || slab->base == last + pages * HAK_PAGE);
        last = slab->base;
    }
    assert_in_range(pool("lock_taken"), locks + asked, locks + 2 * asked); /* the questions themselves */
    assert_in_range(unit_stat("page_heap", "lock_taken"), heap + heap_asked, heap + 2 * heap_asked);
    assert_int_equal(reserved(), rest - (n - 1) * pages * HAK_PAGE);
    assert_int_equal(pool("slabs_taken"), n);
}

TEST(dirty_pages_come_before_new_ones)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=1 HAKMEM_POOL_TLS_PREWARM=off HAKMEM_PURGE_DELAY_MS=3600000");
    unit_needs_delay();
    bool zero;
    struct hak_slab *run = unit_run(HAK_SUPERSLAB_PAGES / 2, 1, &zero), *keep = unit_run(1, 1, &zero);
    char *base = run->base;
    size_t bytes = run->pages * HAK_PAGE;
    memset(base, 1, bytes);
    unit_put_run(run);
    size_t handed_out = unit_space().handed_out, held = hak_budget_held();
    unsigned cls = hak_class_of(8192); /* its slabs are short */
    struct hak_slab *slab = hak_parts.by_class[cls]->slab_acquire(unit_thread(), cls);
    assert_in_range(slab->base, base, base + bytes - 1);
    assert_int_equal(unit_space().handed_out, handed_out);
    assert_int_equal(pool("chunks_mapped"), 0); /* a run that exists already is no batch */
    assert_true(unit_stat("page_heap", "dirty_bytes") < bytes);
    assert_int_equal(hak_budget_held(), held); /* dirty pages are charged wherever they lie */
    unit_put_run(keep);
}

TEST(what_is_untouched_is_not_charged)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=8 HAKMEM_POOL_TLS_ARENA_MB_MAX=8 HAKMEM_POOL_TLS_PREWARM=off");
    size_t held = hak_budget_held(), slab = hak_slab_pages[HAK_NCLASSES - 1] * HAK_PAGE;
    acquire();
    assert_int_equal(reserved(), 8 * HAK_MIB - slab);
    assert_int_equal(hak_budget_held(), held + slab);
    acquire();
    assert_int_equal(hak_budget_held(), held + 2 * slab);
    hak_reserve_age(hak_clock_ms(), 0, UINT_MAX);
    assert_int_equal(reserved(), 0);
    assert_int_equal(pool("chunks_returned"), 1);
    assert_int_equal(hak_budget_held(), held + 2 * slab); /* untouched, nor was it ever dirty */
    assert_int_equal(unit_stat("page_heap", "dirty_bytes"), 0);
}

/* Of existing pages, takes as many as the slab needs. */
TEST(near_a_limit_a_batch_is_as_small_as_needed)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=8 HAKMEM_POOL_TLS_PREWARM=off");
    bool zero;
    size_t slabs = 0, pages = hak_slab_pages[HAK_NCLASSES - 1];
    assert_non_null(unit_run(1, 1, &zero)); /* the others of its superslab are free, and clean */
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    while (unit_run(HAK_SUPERSLAB_PAGES, HAK_SUPERSLAB_PAGES, &zero)) /* all that is mapped */
        ;
    while (acquire())
        slabs++;
    assert_int_equal(slabs, (HAK_SUPERSLAB_PAGES - 1) / pages);
    assert_int_equal(pool("chunks_mapped"), 0);
    fake_os_allow();
    assert_non_null(acquire());
    assert_int_equal(pool("chunks_mapped"), 1);
}

TEST(without_memory_there_is_no_slab_but_later)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=8");
    fake_os_refuse_any(1, ENOMEM, true);
    assert_null(acquire());
    assert_int_equal(reserved(), 0);
    fake_os_allow();
    release(acquire());
    unit_free_blocks(unit_blocks(50000, 10));
}

/* --- what is left goes back ------------------------------------------------------------------------------ */

/* The first check sees that it was used; the second one, a delay later, that it was not. */
TEST(an_idle_rest_goes_back)
{
    unit_init("HAKMEM_PURGE_DELAY_MS=500 HAKMEM_POOL_TLS_PREWARM=off HAKMEM_POOL_TLS_ARENA_MB_INIT=8");
    const struct hak_frontend *f = hak_parts.by_class[HAK_NCLASSES - 1];
    f->purge_tick(hak_clock_ms());
    acquire();
    uint64_t rest = reserved();
    assert_true(rest > 0);
    fake_os_pass(500);
    f->purge_tick(hak_clock_ms());
    assert_int_equal(reserved(), rest);
    if (!hak_parts.release->at_once) { /* else the delay is none */
        fake_os_pass(400);
        f->purge_tick(hak_clock_ms());
        assert_int_equal(reserved(), rest);
    }
    acquire(); /* used again */
    rest = reserved();
    fake_os_pass(100);
    f->purge_tick(hak_clock_ms());
    assert_int_equal(reserved(), rest);
    fake_os_pass(500);
    f->purge_tick(hak_clock_ms());
    assert_int_equal(reserved(), 0);
    assert_int_equal(pool("chunks"), 0);
    assert_int_equal(pool("chunks_returned"), 1);
    assert_non_null(acquire()); /* and the next one is served */
    assert_true(reserved() > 0);
}

static struct unit_block *left;

static void *leave_blocks(void *unused)
{
    left = unit_blocks(10000, 3);
    unit_free_blocks(unit_blocks(50000, 10));
    return unused;
}

TEST(the_rest_of_an_ended_thread_goes_back)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=8");
    for (unsigned i = 0; i < 3; i++) {
        unit_in_thread(leave_blocks, NULL);
        assert_int_equal(reserved(), 0);
        assert_int_equal(pool("chunks"), 0);
        unit_free_blocks(left);
        hak_bins_flush(unit_thread());
        unit_sweep();
    }
    assert_true(pool("chunks_returned") >= 1);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, 0);
    assert_int_equal(unit_pages_in_use(&c), 0);
}

/* Its PARTIAL slabs serve others, and no further pages are taken. */
TEST(slabs_of_ended_threads_are_adopted)
{
    unit_init("HAKMEM_POOL_TLS_PREWARM=off");
    unit_in_thread(leave_blocks, NULL);
    uint64_t slabs = pool("slabs_taken"), mapped = pool("chunks_mapped");
    struct unit_block *mine = unit_blocks(10000, 3);
    assert_int_equal(pool("slabs_taken"), slabs);
    assert_int_equal(pool("chunks_mapped"), mapped);
    unit_free_blocks(left);
    unit_free_blocks(mine);
    hak_bins_flush(unit_thread());
    unit_sweep();
    assert_int_equal(unit_census().used, 0);
}

/* --- fork ------------------------------------------------------------------------------------------------- */

#if !HAK_SANITIZED /* a sanitizer's own locks do not outlive a fork among threads */
static pthread_barrier_t barrier;

static void *hold_a_reserve(void *unused)
{
    left = unit_blocks(10000, 3);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    unit_free_blocks(left);
    return unused;
}

/* The rest of the other threads' reserves is returned once, and no slab is cut from it any more. */
static int use_reserves(void)
{
    if (!reserved() || !pool("chunks"))
        return 1;
    hak_purge_all(0);
    if (reserved())
        return 2;
    unit_free_blocks(unit_blocks(30000, 300));
    hak_purge_all(0);
    struct hak_census c;
    hak_stats_census(&c);
    return c.violations ? 3 : 0;
}

TEST(a_child_gives_others_reserves_back)
{
    unit_init("HAKMEM_PURGE_DELAY_MS=3600000 HAKMEM_POOL_TLS_PREWARM=off");
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread = unit_begin(hold_a_reserve, NULL);
    pthread_barrier_wait(&barrier);
    uint64_t rest = reserved();
    assert_true(rest > 0);
    unit_in_child(use_reserves);
    assert_int_equal(reserved(), rest);
    pthread_barrier_wait(&barrier);
    unit_join(thread);
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}
#endif

/* --- addresses -------------------------------------------------------------------------------------------- */

/* The descriptors of the range's first 512 MiB come last in their table: a slab that crosses that border
 * would have descriptors at both ends of it. */
TEST(no_slab_crosses_the_end_of_the_descriptors)
{
    unit_init("HAKMEM_POOL_TLS_ARENA_MB_INIT=8");
    enum { N = 2000 };
    static char *blocks[N];
    assert_non_null(hak_space_alloc(512 * HAK_MIB / HAK_SUPERSLAB - 1, 1, false));
    for (unsigned i = 0; i < N; i++) {
        blocks[i] = hak_malloc(40000);
        assert_non_null(blocks[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        struct hak_slab *slab = hak_space_slab(blocks[i]);
        assert_non_null(slab);
        for (unsigned k = 0; k < slab->pages; k++)
            assert_ptr_equal(hak_space_slab(slab->base + k * HAK_PAGE), slab);
    }
    for (unsigned i = 0; i < N; i++)
        hak_free(blocks[i]);
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

/* --- prewarm --------------------------------------------------------------------------------------------- */

static void *count_warm(void *n)
{
    *(uint64_t *)n = unit_thread()->counters.prewarmed;
    return NULL;
}

static uint64_t warm_in_a_thread(void)
{
    uint64_t n;
    unit_in_thread(count_warm, &n);
    return n;
}

TEST(no_prewarm)
{
    unit_init("HAKMEM_POOL_TLS_PREWARM=off HAKMEM_TINY_PREWARM=0");
    assert_int_equal(warm_in_a_thread(), 0);
}

static void *count_bins(void *n)
{
    static const unsigned sizes[] = {8, 16, 24, 32, 40, 48, 52};
    unit_thread();
    for (unsigned i = 0; i < COUNT(sizes); i++)
        ((size_t *)n)[i] = unit_bin_length(hak_class_of(sizes[i] * HAK_KIB));
    return NULL;
}

TEST(fixed_prewarm_fills_these_classes)
{
    static const size_t wanted[] = {16, 16, 12, 8, 8, 4, 4};
    size_t n[COUNT(wanted)];
    unit_init("HAKMEM_POOL_TLS_PREWARM=fixed HAKMEM_TINY_PREWARM=0");
    unit_in_thread(count_bins, n);
    for (unsigned i = 0; i < COUNT(wanted); i++)
        assert_int_equal(n[i], wanted[i]);
}

/* For the next thread, of the class of 8 KiB. */
static unsigned learnt(void)
{
    char *text = unit_stats_text(true), *at = strstr(text, "\"adaptive_prewarm\"");
    unsigned blocks = (unsigned)strtoul(strstr(at, "\"blocks\": ") + strlen("\"blocks\": "), NULL, 10);
    free(text);
    return blocks;
}

/* Nothing is learnt if prewarming was not requested. */
TEST(fixed_prewarm_learns_nothing)
{
    unit_init("HAKMEM_POOL_TLS_PREWARM=fixed HAKMEM_TINY_PREWARM=0");
    for (unsigned i = 0; i < 6; i++) {
        warm_in_a_thread();
        assert_int_equal(learnt(), 8);
    }
}

TEST(adaptive_prewarm_shrinks_when_unused)
{
    unit_init("HAKMEM_POOL_TLS_PREWARM=adaptive HAKMEM_TINY_PREWARM=0");
    uint64_t first = warm_in_a_thread(), n = first;
    assert_true(first > 0);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t next = warm_in_a_thread();
        assert_true(next < n || next == 0);
        n = next;
    }
    assert_int_equal(n, 0);
}
