/* SPDX-License-Identifier: MIT
 * Large blocks: as spans, as mappings of their own, and what HAKMEM_ACE_TRACE says of both. */
#include <fnmatch.h>
#include <string.h>

#include "core/os/limit.h"
#include "core/os/meta.h"
#include "core/plugin.h"
#include "unit.h"

#define DIRECT (80 * HAK_MIB)

static uint64_t calls(enum hak_cause cause, enum hak_os_call call)
{
    return hak_ledger[cause][call].calls;
}

TEST(spans_lie_in_the_range_and_know_their_size)
{
    unit_start(NULL);
    for (size_t size = HAK_SMALL_MAX + 1; size < 8 * HAK_MIB; size = size * 4 / 3) {
        char *p = hak_malloc(size);
        struct hak_slab *slab = hak_space_slab(p);
        assert_non_null(slab);
        assert_int_equal(hak_slab_state(slab), HAK_SLAB_SPAN);
        assert_ptr_equal(slab->base, p);
        assert_int_equal(unit_usable(p), HAK_CANARY ? slab->pages * HAK_PAGE : hak_align_up(size, 4096));
        assert_true(slab->pages * HAK_PAGE - size < HAK_PAGE + slab->pages * HAK_PAGE / 16);
        p[size - 1] = 1;
        hak_free(p);
        assert_true(!hak_space_slab(p) || hak_slab_state(hak_space_slab(p)) != HAK_SLAB_SPAN);
    }
    assert_int_equal(unit_transitions(HAK_SLAB_UNUSED, HAK_SLAB_SPAN),
                     unit_transitions(HAK_SLAB_SPAN, HAK_SLAB_UNUSED));
}

TEST(big_blocks_have_mappings_of_their_own)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT);
    assert_false(hak_space_contains(p));
    assert_int_equal(calls(HAK_CAUSE_large_map, HAK_OS_mmap), 1);
    assert_int_equal(unit_stat("large", "direct_mappings"), 1);
    assert_int_equal(unit_stat("large", "direct_bytes"), DIRECT);
    assert_int_equal(unit_usable(p), DIRECT);
    p[DIRECT - 1] = 1;
    hak_free(p);
    assert_int_equal(calls(HAK_CAUSE_large_unmap, HAK_OS_munmap), 1);
    assert_int_equal(unit_stat("large", "direct_bytes"), 0);
}

TEST(a_mapping_gets_huge_pages_where_the_sample_was_used)
{
    unit_start(NULL);
    memset(hak_malloc(DIRECT), 1, DIRECT); /* nothing is known yet */
    assert_int_equal(fake_os_huge_bytes(), 0);
    char *p = hak_malloc(DIRECT);
    assert_int_equal(fake_os_huge_bytes(), DIRECT);
    hak_resize(p, 2 * DIRECT); /* what was advised in parts could not be resized */
    assert_int_equal(unit_stat("large", "remapped"), 1);
}

TEST(a_mapping_gets_small_pages_where_the_sample_was_not_used)
{
    unit_start(NULL);
    char *sample = hak_malloc(DIRECT);
    sample[0] = 1;
    hak_malloc(DIRECT);
    assert_int_equal(fake_os_huge_bytes(), 0);
    memset(sample, 1, DIRECT);
    hak_free(sample); /* the last look */
    hak_malloc(DIRECT);
    assert_int_equal(fake_os_huge_bytes(), DIRECT);
}

static uint64_t discards(void)
{
    return calls(HAK_CAUSE_discard, HAK_OS_madvise);
}

/* Returns a block of zeros; the program touches each `step`th byte. */
static char *take_zeroed(size_t step)
{
    char *p = hak_alloc_zeroed(2 * HAK_MIB);
    for (size_t i = 0; i < 2 * HAK_MIB; i += step) {
        assert_int_equal(p[i], 0);
        p[i] = 1;
    }
    return p;
}

TEST(the_kernel_clears_old_pages_until_the_program_touches_most)
{
    unit_start("HAKMEM_THP=never HAKMEM_PURGE_DELAY_MS=100000");
    unit_needs_delay();
    for (unsigned i = 0; i < 3; i++) {
        char *p = hak_malloc(2 * HAK_MIB);
        memset(p, 1, 2 * HAK_MIB);
        hak_free(p);
        p = take_zeroed(HAK_MIB);
        assert_in_range(hak_os_resident(p, 2 * HAK_MIB, HAK_CAUSE_huge_page), 0, 8 * hak_os_page_size());
        hak_free(p);
    }
    uint64_t before = discards();
    for (unsigned i = 0; i < 33; i++)
        hak_free(take_zeroed(1024));
    assert_in_range(discards() - before, 2, 6);
}

/* A huge page would make 2 MiB resident at the first touch. */
TEST(sparse_blocks_of_zeros_have_small_pages)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=100000");
    unit_needs_delay();
    memset(hak_malloc(DIRECT), 1, DIRECT);
    hak_malloc(DIRECT); /* has huge pages */
    char *p = hak_malloc(8 * HAK_MIB), *q;
    memset(p, 1, 8 * HAK_MIB);
    hak_free(p);
    for (unsigned i = 0; i < 3; i++) {
        q = hak_alloc_zeroed(8 * HAK_MIB);
        assert_ptr_equal(p, q);
        assert_int_equal(q[HAK_MIB], 0);
        q[0] = 1;
        hak_free(q);
    }
    assert_in_range(unit_stat("huge_pages", "kept_small"), 4, 5);
}

/* The program may have advised huge pages for the long block. */
TEST(short_blocks_have_small_pages_where_a_long_one_was_purged)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=100");
    unit_needs_delay();
    for (unsigned i = 1; i <= 3; i++) {
        char *p = hak_malloc(8 * HAK_MIB);
        memset(p, 1, 8 * HAK_MIB);
        hak_free(p);
        fake_os_pass(10000);
        hak_purge_tick();
        assert_int_equal(hak_dirty_queue.waiting, 0);
        hak_free(hak_malloc(HAK_MIB));
        assert_in_range(unit_stat("huge_pages", "kept_small"), i, 2 * i);
    }
}

TEST(what_a_block_leaves_as_it_grows_goes_back)
{
    unit_start(NULL);
    char *p = hak_malloc(5 * HAK_PAGE), *behind = hak_malloc(HAK_PAGE), *old = p;
    memset(p, 1, 5 * HAK_PAGE);
    p = hak_resize(p, 6 * HAK_PAGE);
    assert_int_equal(p[5 * HAK_PAGE - 1], 1);
    assert_ptr_not_equal(p, old);
    assert_int_equal(hak_os_resident(old, 5 * HAK_PAGE, HAK_CAUSE_huge_page), 0);
    hak_free(behind);
    hak_free(p);
}

TEST(a_block_that_shrinks_gives_system_pages_back_once)
{
    unit_start(NULL);
    char *p = hak_malloc(200000), *behind = hak_malloc(200000);
    for (unsigned i = 0; i < 10; i++) {
        memset(p, 1, 190000);
        assert_ptr_equal(hak_resize(p, 140000), p);
        assert_int_equal(p[139999], 1);
        assert_ptr_equal(hak_resize(p, 190000), p);
    }
    assert_int_equal(discards(), !HAK_CANARY);
    hak_free(p);
    hak_free(behind);
}

TEST(a_mapping_follows_the_setting)
{
    unit_start("HAKMEM_THP=always");
    size_t before = fake_os_huge_bytes();
    hak_malloc(DIRECT);
    assert_int_equal(fake_os_huge_bytes() - before, DIRECT);
    assert_int_equal(fake_os_count(HAK_OS_mincore), 0);
}

TEST(an_aligned_mapping_goes_back_whole)
{
    unit_start(NULL);
    char *p = hak_alloc_aligned(64 * HAK_MIB, DIRECT + 1);
    assert_int_equal((uintptr_t)p % (64 * HAK_MIB), 0);
    p[DIRECT] = 1;
    uint64_t bytes = hak_ledger[HAK_CAUSE_large_map][HAK_OS_mmap].bytes;
    hak_free(p);
    assert_int_equal(hak_ledger[HAK_CAUSE_large_unmap][HAK_OS_munmap].bytes, bytes);
}

TEST(a_mapping_is_resized_without_a_copy)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT);
    p[5] = 7;
    p = hak_resize(p, 2 * DIRECT);
    assert_int_equal(p[5], 7);
    assert_int_equal(calls(HAK_CAUSE_realloc_remap, HAK_OS_mremap), 1);
    assert_int_equal(calls(HAK_CAUSE_large_map, HAK_OS_mmap), 1);
    p = hak_resize(p, DIRECT / 2 + DIRECT / 4);
    assert_int_equal(p[5], 7);
    assert_int_equal(calls(HAK_CAUSE_realloc_remap, HAK_OS_mremap), 2);
    assert_int_equal(unit_stat("large", "remapped"), 2);
    size_t least = HAK_HARDENED ? 2 * HAK_MIB : 128 * HAK_KIB; /* half of what gets a mapping as it grows */
    p = hak_resize(p, least);
    assert_false(hak_space_contains(p));
    p = hak_resize(p, least - (HAK_HARDENED ? HAK_PAGE : HAK_PAGE / 2));
    assert_int_equal(p[5], 7);
    assert_true(hak_space_contains(p));
    assert_int_equal(unit_stat("large", "direct_bytes"), 0);
    hak_free(p);
}

/* Vectors in each other's way are copied twice at most, and then remapped. */
TEST(blocks_that_grow_in_turn_are_not_copied_each_time)
{
    unit_start(NULL);
    char *p[8];
    for (unsigned i = 0; i < COUNT(p); i++)
        p[i] = hak_malloc(100000);
    for (size_t size = 100000; size < 8 * HAK_MIB; size += 100000)
        for (unsigned i = 0; i < COUNT(p); i++) {
            p[i][size - 1] = 1;
            p[i] = hak_resize(p[i], size + 100000);
            assert_int_equal(p[i][size - 1], 1);
        }
    assert_true(hak_ledger[HAK_CAUSE_discard][HAK_OS_madvise].bytes < COUNT(p) * HAK_MIB * (HAK_HARDENED ? 16 : 1));
    assert_in_range(fake_os_count(HAK_OS_mremap), 1, COUNT(p) * 64);
}

TEST(a_sparse_block_that_moves_stays_sparse)
{
    unit_start("HAKMEM_THP=never");
    char *p = hak_alloc_zeroed(8 * HAK_MIB), *beside = hak_malloc(HAK_MIB);
    p[100] = 1;
    p[8 * HAK_MIB - 1] = 2;
    char *q = hak_resize(p, DIRECT);
    assert_true(q != p && beside);
    assert_in_range(hak_os_resident(q, 2 * HAK_MIB, HAK_CAUSE_huge_page), 1, 4 * hak_os_page_size());
    assert_true(q[100] == 1 && q[8 * HAK_MIB - 1] == 2 && q[8 * HAK_MIB] == 0);
}

TEST(a_vector_that_grows_alone_needs_no_mapping)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=100000");
    for (unsigned i = 0; i < 20; i++) {
        char *p = hak_malloc(100000);
        for (size_t size = 100000; size < 3 * HAK_MIB; size += size / 2)
            p = hak_resize(p, size);
        hak_free(p);
    }
    assert_in_range(unit_stat("large", "directs"), 0, 1);
}

/* They could not be joined: some other blocks of this size are spans. */
TEST(blocks_that_grow_have_few_mappings)
{
    unit_start(NULL);
    HAK_STORE_RELAXED(&hak_limit_mappings, 60);
    for (unsigned i = 0; i < 80; i++) {
        char *p = hak_malloc(100000), *beside = hak_malloc(100000);
        p = hak_resize(p, 5 * HAK_MIB);
        assert_true(p && beside && unit_is_open(p + 5 * HAK_MIB - 1));
    }
    assert_in_range(unit_stat("large", "direct_mappings"), 1, 61);
}

TEST(a_refused_resize_copies_or_leaves)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT), *q;
    p[DIRECT - 1] = 9;
    fake_os_refuse(HAK_OS_mremap, 1, ENOMEM, true);
    q = hak_resize(p, DIRECT + hak_os_page_size());
    assert_non_null(q);
    assert_int_equal(q[DIRECT - 1], 9);
    assert_int_equal(unit_stat("large", "direct_mappings"), 1);
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_resize(q, 2 * DIRECT));
    assert_int_equal(q[DIRECT - 1], 9);
    assert_int_equal(unit_usable(q), DIRECT + hak_os_page_size());
    fake_os_allow();
    hak_free(q);
}

TEST(a_refused_unmap_gives_the_pages_back)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT);
    p[0] = 1;
    fake_os_refuse(HAK_OS_munmap, 1, ENOMEM, false);
    hak_free(p);
    assert_int_equal(calls(HAK_CAUSE_large_unmap, HAK_OS_madvise), 1);
    assert_int_equal(p[0], 0); /* still mapped, and empty */
    assert_int_equal(unit_stat("large", "direct_mappings"), 0);
}

TEST(a_mapping_without_an_entry_goes_back)
{
    unit_start(NULL);
    hak_free(hak_malloc(100000));
    while (hak_meta_alloc(64)) /* the next entry needs a chunk, which is refused */
        fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    fake_os_allow();
    fake_os_refuse(HAK_OS_mmap, 2, ENOMEM, true);
    assert_null(hak_malloc(DIRECT));
    assert_int_equal(calls(HAK_CAUSE_large_unmap, HAK_OS_munmap), 1);
    fake_os_allow();
    hak_free(hak_malloc(DIRECT));
}

/* --- HAKMEM_ACE_TRACE ------------------------------------------------------------------------------------- */

/* 17 of the 18 pages of its class are free behind a block, and no others. */
static void leave_too_few(void)
{
    char *p = hak_malloc(17 * HAK_PAGE);
    assert_non_null(hak_malloc(HAK_PAGE));
    memset(p, 1, 17 * HAK_PAGE);
    while (unit_stat("large", "live_bytes") < unit_stat("page_heap", "superslabs_mapped") * HAK_SUPERSLAB)
        assert_non_null(hak_malloc(HAK_PAGE));
    hak_resize(p, HAK_PAGE);
}

static void refuse_superslabs(void)
{
    hak_free(hak_malloc(100));
    fake_os_refuse_places(ENOMEM);
}

static void refuse_all(void)
{
    hak_free(hak_malloc(100));
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
}

/* A request writes one line, or none. */
static const struct {
    const char *settings;
    void (*prepare)(void);
    size_t size;
    bool refused;
    const char *line; /* as fnmatch has it */
} traces[] = {
    {"HAKMEM_ACE_TRACE=1 HAKMEM_ACE_WASTE_PCT=6", NULL, 35 * HAK_PAGE, false, ""}, /* rounded to 36 */
    {"HAKMEM_ACE_TRACE=1 HAKMEM_ACE_WASTE_PCT=6", NULL, 33 * HAK_PAGE, false, "*ACE Threshold: 2162688 bytes, *"},
    {"HAKMEM_ACE_WASTE_PCT=6", NULL, 33 * HAK_PAGE, false, ""},
    {"HAKMEM_ACE_TRACE=1 HAKMEM_ACE_WASTE_PCT=50 HAKMEM_ACE_CACHE_MB=0", leave_too_few, 17 * HAK_PAGE, false,
     "*ACE Exhaustion: 1114112 bytes, *"},
    {"HAKMEM_ACE_TRACE=1", refuse_superslabs, 20 * HAK_MIB, false,
     "*ACE Exhaustion: 20971520 bytes, *mapped directly*"},
    {"HAKMEM_ACE_TRACE=1 HAKMEM_LIMIT_MB=4000", refuse_all, DIRECT, true,
     "*ACE MapFail: 83886080 bytes, errno 12 (ENOMEM), * RLIMIT_AS=* vm.max_map_count=* vm.overcommit_memory=* "
     "HAKMEM_LIMIT_MB=4000\n"},
    {"HAKMEM_ACE_WASTE_PCT=6", refuse_all, DIRECT, true, ""},
};

TEST_EACH(trace, traces)
{
    char text[4096];
    unit_start(row->settings);
    if (row->prepare)
        row->prepare();
    void *p;
    unit_stderr_of(p = hak_malloc(row->size), text, sizeof text);
    fake_os_allow();
    assert_int_equal(p == NULL, row->refused);
    if (fnmatch(row->line, text, 0) || (text[0] && strchr(text, '\n')[1]))
        fail_msg("instead of %s: %s", row->line, text);
}

TEST(trace_of_a_realloc_that_must_copy)
{
    unit_start("HAKMEM_ACE_TRACE=1");
    char text[1024];
    char *p = hak_malloc(DIRECT);
    fake_os_refuse(HAK_OS_mremap, 1, EAGAIN, true);
    unit_stderr_of(p = hak_resize(p, 2 * DIRECT), text, sizeof text);
    assert_non_null(p);
    assert_non_null(strstr(text, "ACE MapFail: 167772160 bytes, errno 11 (EAGAIN), realloc copies; "));
}

TEST(trace_of_a_small_block_without_a_slab)
{
    unit_start("HAKMEM_ACE_TRACE=1");
    hak_free(hak_malloc(100));
    fake_os_refuse_any(1, ENOMEM, true);
    const size_t sizes[] = {100, 1000, 3000, 10000, 30000, 50000};
    char line[64] = "";
    for (unsigned i = 0; i < COUNT(sizes) * 200 && !line[0]; i++) { /* until the writable pages are used up */
        static char text[4096];
        unit_stderr_of(hak_malloc(sizes[i % COUNT(sizes)]), text, sizeof text);
        if (strstr(text, "ACE Exhaustion: "))
            strncpy(line, strstr(text, "ACE Exhaustion: "), sizeof line - 1);
    }
    fake_os_allow();
    assert_non_null(strstr(line, " bytes, no slab of its class"));
}
