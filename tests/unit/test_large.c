/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "core/meta.h"
#include "core/plugin.h"
#include "core/slow.h"
#include "unit.h"

#define DIRECT (40 * HAK_MIB)

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
        assert_int_equal(hak_slab_state(slab), HAK_SLAB_LARGE);
        assert_ptr_equal(slab->base, p);
        assert_int_equal(hak_usable_size(p), hak_align_up(size, 4096));
        assert_true(slab->pages * HAK_PAGE - size < HAK_PAGE + slab->pages * HAK_PAGE / 16);
        p[size - 1] = 1;
        hak_free(p);
        assert_true(!hak_space_slab(p) || hak_slab_state(hak_space_slab(p)) != HAK_SLAB_LARGE);
    }
    assert_int_equal(unit_transitions(HAK_SLAB_UNUSED, HAK_SLAB_LARGE),
                     unit_transitions(HAK_SLAB_LARGE, HAK_SLAB_UNUSED));
}

TEST(big_blocks_have_mappings_of_their_own)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT);
    assert_false(hak_space_contains(p));
    assert_int_equal(calls(HAK_CAUSE_large_map, HAK_OS_mmap), 1);
    assert_int_equal(unit_stat("large", "direct_mappings"), 1);
    assert_int_equal(unit_stat("large", "direct_bytes"), DIRECT);
    assert_int_equal(hak_usable_size(p), DIRECT);
    p[DIRECT - 1] = 1;
    hak_free(p);
    assert_int_equal(calls(HAK_CAUSE_large_unmap, HAK_OS_munmap), 1);
    assert_int_equal(unit_stat("large", "direct_bytes"), 0);
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
    p = hak_resize(p, 100000); /* too small to stay a mapping */
    assert_int_equal(p[5], 7);
    assert_true(hak_space_contains(p));
    assert_int_equal(unit_stat("large", "direct_bytes"), 0);
    hak_free(p);
}

TEST(a_refused_resize_copies_or_leaves)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT), *q;
    p[DIRECT - 1] = 9;
    fake_os_refuse(HAK_OS_mremap, 1, ENOMEM, true);
    q = hak_resize(p, DIRECT + 4096);
    assert_non_null(q);
    assert_int_equal(q[DIRECT - 1], 9);
    assert_int_equal(unit_stat("large", "direct_mappings"), 1);
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_resize(q, 2 * DIRECT));
    assert_int_equal(q[DIRECT - 1], 9);
    assert_int_equal(hak_usable_size(q), DIRECT + 4096);
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

TEST(zeroed_spans)
{
    unit_start(NULL);
    char *p = hak_malloc(200000);
    memset(p, 1, 200000);
    hak_free(p);
    p = hak_alloc_zeroed(200000);
    for (size_t i = 0; i < 200000; i++)
        assert_int_equal(p[i], 0);
    hak_free(p);
}

static void *free_it(void *p)
{
    hak_free(p);
    return NULL;
}

TEST(spans_are_freed_by_any_thread)
{
    unit_start(NULL);
    for (size_t size = 100000; size < 10 * HAK_MIB; size *= 3)
        unit_in_thread(free_it, hak_malloc(size));
    assert_int_equal(unit_census().live_large, 0);
}

UNIT_MAIN(T(spans_lie_in_the_range_and_know_their_size), T(big_blocks_have_mappings_of_their_own),
          T(an_aligned_mapping_goes_back_whole), T(a_mapping_is_resized_without_a_copy),
          T(a_refused_resize_copies_or_leaves), T(a_refused_unmap_gives_the_pages_back),
          T(a_mapping_without_an_entry_goes_back), T(zeroed_spans), T(spans_are_freed_by_any_thread))
