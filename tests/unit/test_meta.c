/* SPDX-License-Identifier: MIT */
#include "core/os/meta.h"

#include <string.h>

#include "unit.h"

static void assert_fresh(const char *p, size_t size)
{
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % HAK_CACHELINE, 0);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(p[i], 0);
}

TEST(a_full_chunk_is_followed_by_one_map)
{
    unit_start(NULL);
    for (unsigned i = 0; i < 4; i++)
        assert_fresh(hak_meta_alloc(64 * HAK_KIB), 64 * HAK_KIB);
    assert_int_equal(fake_os_count(HAK_OS_mmap), 1);
    assert_fresh(hak_meta_alloc(64), 64);
    assert_int_equal(fake_os_count(HAK_OS_mmap), 2);
    assert_fresh(hak_meta_alloc(HAK_MIB), HAK_MIB);
    assert_int_equal(fake_os_count(HAK_OS_mmap), 3);
    assert_int_equal(unit_cause_calls(HAK_CAUSE_metadata), fake_os_total());
}

TEST(memory_given_at_start_is_used_first)
{
    static _Alignas(HAK_CACHELINE) char chunk[256];
    unit_start(NULL);
    hak_meta_give(chunk, sizeof chunk);
    assert_ptr_equal(hak_meta_alloc(100), chunk);
    assert_ptr_equal(hak_meta_alloc(100), chunk + 128);
    assert_int_equal(fake_os_total(), 0);
}

TEST(a_refused_chunk_is_asked_for_smaller)
{
    unit_start(NULL);
    fake_os_limit_maps(4096);
    assert_fresh(hak_meta_alloc(100), 100);
    assert_int_equal(fake_os_count(HAK_OS_mmap), 2);
}

TEST(without_memory_null_and_later_served)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_meta_alloc(100));
    assert_null(hak_meta_alloc(100));
    assert_int_equal(hak_meta_bytes(), 0);
    fake_os_allow();
    assert_fresh(hak_meta_alloc(100), 100);
}

TEST(dropped_descriptors_are_zeroed_and_used_again)
{
    struct hak_meta_list recycled = {0};
    unit_start(NULL);
    char *a = hak_meta_new(&recycled, 100), *b = hak_meta_new(&recycled, 100);
    assert_fresh(a, 100);
    assert_fresh(b, 100);
    assert_ptr_not_equal(a, b);
    memset(a, 0xff, 100);
    memset(b, 0xff, 100);
    hak_meta_recycle(&recycled, a);
    hak_meta_recycle(&recycled, b);
    size_t bytes = hak_meta_bytes();
    assert_ptr_equal(hak_meta_new(&recycled, 100), b);
    assert_ptr_equal(hak_meta_new(&recycled, 100), a);
    assert_fresh(a, 100);
    assert_fresh(b, 100);
    assert_int_equal(hak_meta_bytes(), bytes);
    assert_non_null(hak_meta_new(&recycled, 100));
    assert_int_equal(hak_meta_bytes(), bytes + 128);
}

TEST(pages_share_none_with_structures_and_serve_again)
{
    unit_start(NULL);
    size_t page = hak_os_page_size();
    char *structure = hak_meta_alloc(100), *pages = hak_meta_alloc_pages(2 * page - 1), *next = hak_meta_alloc(100);
    assert_int_equal((uintptr_t)pages % page, 0);
    assert_fresh(pages, 2 * page);
    assert_ptr_equal(next, structure + 128);
    assert_int_equal(hak_meta_bytes(), 2 * page + 2 * 128);
    char *more = hak_meta_alloc_pages(page);
    assert_ptr_equal(more, pages - page);
    hak_meta_free_pages(pages, 2 * page - 1);
    assert_ptr_not_equal(hak_meta_alloc_pages(page), pages);
    assert_ptr_equal(hak_meta_alloc_pages(2 * page), pages);
    assert_int_equal(hak_meta_bytes(), 4 * page + 2 * 128);
}

TEST(pages_of_a_chunk_that_ends_within_one_and_without_memory)
{
    static _Alignas(65536) char chunk[3 * 65536 + 64];
    unit_start(NULL);
    hak_meta_give(chunk, sizeof chunk);
    char *pages = hak_meta_alloc_pages(1);
    assert_ptr_equal(pages, chunk + 3 * 65536 - hak_os_page_size());
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, true);
    assert_null(hak_meta_alloc_pages(4 * 65536));
    assert_ptr_equal(hak_meta_alloc(1), chunk);
    assert_ptr_equal(hak_meta_alloc_pages(1), pages - hak_os_page_size());
}
