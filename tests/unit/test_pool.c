/* SPDX-License-Identifier: MIT
 * The pool frontend and its arenas (arena.c). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/plugin.h"
#include "core/malloc/malloc.h"
#include "core/heap/heap.h"

#include "unit.h"

static void start(const char *settings)
{
    unit_start(settings);
    assert_true(hak_init());
}

static uint64_t pool(const char *key)
{
    return unit_stat("pool", key);
}

TEST(it_serves_8_to_52_kib)
{
    start(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (hak_strides[cls] >= 8192)
            assert_string_equal(hak_parts.by_class[cls]->name, "pool");
        else
            assert_string_not_equal(hak_parts.by_class[cls]->name, "pool");
}

TEST(each_class_comes_and_goes)
{
    start(NULL);
    static const size_t original[] = {8192, 16384, 24576, 32768, 40960, 49152, 53248};
    for (unsigned i = 0; i < COUNT(original); i++) {
        struct unit_block *blocks = unit_blocks(original[i], 100);
        assert_int_equal(unit_usable(blocks), original[i]);
        for (struct unit_block *b = blocks; b; b = b->next)
            assert_int_equal(hak_space_slab(b)->stride, original[i]);
        unit_free_blocks(blocks);
    }
    hak_heap_drain(unit_thread());
    assert_int_equal(unit_census().used, 0);
}

TEST(chunks_double_up_to_the_largest)
{
    start("HAKMEM_POOL_TLS_ARENA_MB_INIT=1 HAKMEM_POOL_TLS_ARENA_MB_MAX=4 HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS=8");
    static const uint64_t mib[] = {1, 3, 7, 11}; /* 1, 2, 4, 4 */
    unsigned seen = 0;
    while (seen < COUNT(mib)) {
        unit_blocks(20000, 1);
        if (pool("chunks") > seen)
            assert_int_equal(pool("chunk_bytes"), mib[seen++] * HAK_MIB);
    }
}

TEST(growth_has_so_many_levels)
{
    start("HAKMEM_POOL_TLS_ARENA_MB_INIT=1 HAKMEM_POOL_TLS_ARENA_MB_MAX=16 HAKMEM_POOL_TLS_ARENA_GROWTH_LEVELS=0");
    unit_blocks(20000, 200);
    assert_int_equal(pool("chunk_bytes"), pool("chunks") * HAK_MIB);
}

TEST(empty_chunks_go_back_but_for_one)
{
    start(NULL);
    struct unit_block *blocks = unit_blocks(30000, 500);
    assert_true(pool("chunks") >= 3);
    unit_free_blocks(blocks);
    hak_heap_drain(unit_thread());
    assert_true(pool("chunks") <= 1);
    assert_int_equal(pool("slabs_put"), pool("slabs_taken"));
}

static struct unit_block *left;

static void *leave_blocks(void *unused)
{
    left = unit_blocks(10000, 3);
    unit_free_blocks(unit_blocks(50000, 10));
    return unused;
}

TEST(chunks_of_ended_threads_are_adopted)
{
    start(NULL);
    unit_in_thread(leave_blocks, NULL);
    unit_sweep();
    assert_true(pool("chunks") >= 1);
    uint64_t mapped = pool("chunks_mapped");
    struct unit_block *mine = unit_blocks(12000, 3);
    assert_int_equal(pool("chunks_mapped"), mapped);
    assert_true(pool("chunks_adopted") >= 1);
    unit_free_blocks(left);
    unit_free_blocks(mine);
    hak_heap_drain(unit_thread());
    unit_sweep();
    assert_int_equal(unit_census().used, 0);
}

TEST(chunks_of_ended_threads_go_back_but_for_one)
{
    start(NULL);
    for (unsigned i = 0; i < 3; i++) {
        unit_in_thread(leave_blocks, NULL);
        unit_free_blocks(left);
        hak_heap_drain(unit_thread());
        unit_sweep();
    }
    assert_true(pool("chunks") <= 1);
    struct hak_census c = unit_census();
    assert_int_equal(unit_pages_in_use(&c), 0);
}

TEST(free_pages_go_back_after_the_delay)
{
    start("HAKMEM_PURGE_DELAY_MS=500 HAKMEM_RELEASE=");
    if (hak_parts.release->at_once)
        skip();
    struct unit_block *live = unit_blocks(8192, 1);
    unit_free_blocks(unit_blocks(50000, 10));
    hak_heap_drain(unit_thread());
    uint64_t before = unit_cause_calls(HAK_CAUSE_purge);
    fake_os_pass(480);
    hak_purge_tick();
    assert_int_equal(unit_cause_calls(HAK_CAUSE_purge), before);
    fake_os_pass(20);
    hak_purge_tick();
    assert_true(unit_cause_calls(HAK_CAUSE_purge) > before);
    unit_free_blocks(live);
}

/* So does what became free at the first look after it, such as a parked thread's. */
TEST(after_a_sleep_all_free_pages_go_back)
{
    start("HAKMEM_PURGE_DELAY_MS=500 HAKMEM_RELEASE=");
    if (hak_parts.release->at_once)
        skip();
    struct unit_block *live = unit_blocks(8192, 1), *others = unit_blocks(50000, 10);
    hak_purge_tick();
    uint64_t before = unit_cause_calls(HAK_CAUSE_purge);
    fake_os_pass(500);
    unit_free_blocks(others);
    hak_heap_drain(unit_thread());
    hak_purge_tick();
    assert_true(unit_cause_calls(HAK_CAUSE_purge) > before);
    unit_free_blocks(live);
}

TEST(trim_gives_free_pages_back)
{
    start("HAKMEM_PURGE_DELAY_MS=3600000");
    if (hak_parts.release->at_once)
        skip();
    struct unit_block *live = unit_blocks(8192, 1);
    unit_free_blocks(unit_blocks(50000, 10));
    assert_true(hak_trim(0) > 0);
    assert_true(unit_cause_calls(HAK_CAUSE_trim) > 0);
    unit_free_blocks(live);
}

TEST(near_a_limit_a_chunk_is_as_small_as_needed)
{
    start("HAKMEM_POOL_TLS_ARENA_MB_INIT=8");
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_parts.by_class[HAK_NCLASSES - 1]->slab_acquire(unit_thread(), HAK_NCLASSES - 1));
    fake_os_allow();
    unit_free_blocks(unit_blocks(50000, 10));
}

/* The descriptors of the range's first 512 MiB come last in their table: a slab that crosses that border
 * would have descriptors at both ends of it. */
TEST(no_slab_crosses_the_end_of_the_descriptors)
{
    start("HAKMEM_POOL_TLS_ARENA_MB_INIT=8");
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
    hak_heap_drain(unit_thread());
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
    start("HAKMEM_POOL_TLS_PREWARM=off HAKMEM_TINY_PREWARM=0");
    assert_int_equal(warm_in_a_thread(), 0);
}

TEST(fixed_prewarm_is_always_the_same)
{
    start("HAKMEM_POOL_TLS_PREWARM=fixed HAKMEM_TINY_PREWARM=0");
    uint64_t n = warm_in_a_thread();
    assert_int_equal(n, 16 + 16 + 12 + 8 + 8 + 4 + 4);
    assert_int_equal(warm_in_a_thread(), n);
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
    start("HAKMEM_POOL_TLS_PREWARM=fixed HAKMEM_TINY_PREWARM=0");
    unit_in_thread(count_bins, n);
    for (unsigned i = 0; i < COUNT(wanted); i++) /* arrays of a processor have a length of their own */
        assert_in_range(n[i], HAK_CACHE_CPU ? 1 : wanted[i], wanted[i]);
}

/* What is learnt is nothing where nobody asked. */
TEST(fixed_prewarm_learns_nothing)
{
    start("HAKMEM_POOL_TLS_PREWARM=fixed HAKMEM_TINY_PREWARM=0");
    warm_in_a_thread();
    char *before = unit_stats_text(true), *from = strstr(before, "\"adaptive_prewarm\"");
    assert_non_null(from);
    *strchr(from, '}') = 0;
    assert_non_null(strstr(from, "\"blocks\": 8"));
    for (unsigned i = 0; i < 5; i++)
        warm_in_a_thread();
    char *after = unit_stats_text(true);
    assert_non_null(strstr(after, from));
    free(before);
    free(after);
}

TEST(adaptive_prewarm_shrinks_when_unused)
{
    start("HAKMEM_POOL_TLS_PREWARM=adaptive HAKMEM_TINY_PREWARM=0");
    uint64_t first = warm_in_a_thread(), n = first;
    assert_true(first > 0);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t next = warm_in_a_thread();
        assert_true(next < n || next == 0);
        n = next;
    }
    assert_int_equal(n, 0);
}

/* For the next thread, of the class of 8 KiB. */
static unsigned learnt(void)
{
    char *text = unit_stats_text(true), *at = strstr(text, "\"adaptive_prewarm\"");
    unsigned blocks = (unsigned)strtoul(strstr(at, "\"blocks\": ") + strlen("\"blocks\": "), NULL, 10);
    free(text);
    return blocks;
}

/* Then it is parked. */
static void run_thread(void *(*fn)(void *), void *context)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, context), 0);
    pthread_join(thread, NULL);
}

static void *use_more(void *unused)
{
    unit_free_blocks(unit_blocks(8 * HAK_KIB, 20));
    return unused;
}

TEST(what_a_thread_did_before_it_was_resumed_teaches_nothing)
{
    uint64_t n;
    start("HAKMEM_POOL_TLS_PREWARM=adaptive HAKMEM_TINY_PREWARM=0");
    unsigned first = learnt();
    run_thread(use_more, NULL);
    assert_int_equal(learnt(), first + 1);
    run_thread(count_warm, &n);
    if (unit_stat("threads", "resumed") == 0)
        skip(); /* without `tiny` the thread that ended had nothing to park */
    assert_int_equal(learnt(), first);
}

UNIT_MAIN(T(what_a_thread_did_before_it_was_resumed_teaches_nothing), T(fixed_prewarm_fills_these_classes),
          T(fixed_prewarm_learns_nothing), T(it_serves_8_to_52_kib), T(each_class_comes_and_goes),
          T(chunks_double_up_to_the_largest), T(growth_has_so_many_levels), T(empty_chunks_go_back_but_for_one),
          T(chunks_of_ended_threads_are_adopted), T(chunks_of_ended_threads_go_back_but_for_one),
          T(free_pages_go_back_after_the_delay), T(after_a_sleep_all_free_pages_go_back), T(trim_gives_free_pages_back),
          T(near_a_limit_a_chunk_is_as_small_as_needed), T(no_slab_crosses_the_end_of_the_descriptors), T(no_prewarm),
          T(fixed_prewarm_is_always_the_same), T(adaptive_prewarm_shrinks_when_unused))
