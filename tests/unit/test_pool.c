/* SPDX-License-Identifier: MIT
 * The pool frontend: which classes it has, and how its pages are mapped. */
#include <stdlib.h>

#include "core/heap/decay.h"
#include "core/parts/parts.h"
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

/* Slabs until the next batch. */
static void use_up_batch(void)
{
    uint64_t batches = pool("chunks_mapped");
    for (unsigned i = 0; pool("chunks_mapped") == batches; i++) {
        assert_true(i < 1000);
        assert_non_null(hak_parts_acquire_slab(unit_thread(), HAK_NCLASSES - 1));
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
    }
}

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
