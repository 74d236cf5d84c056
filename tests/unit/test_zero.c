/* SPDX-License-Identifier: MIT
 * Blocks of zero bytes: in hardened builds, each is a distinct address that is inaccessible. */
#include "core/pages/zero.h"

#include <string.h>

#include "core/malloc/aligned.h"
#include "core/malloc/block.h"
#include "core/malloc/fast.h"
#include "unit.h"

#define ALL 65536u

static char *p;

TEST(nobody_can_use_them)
{
    unit_start(NULL);
    p = hak_malloc(0);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_ptr_not_equal(p, hak_malloc(0));
    assert_int_equal(hak_block_usable(p, "malloc_usable_size"), 0);
    assert_false(unit_is_open(p));
}

TEST(they_are_freed_once)
{
    unit_start(NULL);
    p = hak_malloc(0);
    assert_dies(hak_free(p + 1), "invalid free");
    assert_dies(unit_usable(p + 8), "invalid malloc_usable_size");
    hak_free(p);
    assert_dies(hak_free(p), "freed twice");
    assert_ptr_not_equal(hak_malloc(0), p);
}

TEST(they_grow_as_others_do)
{
    static const size_t sizes[] = {1, 500, 20000, 100000, 64 << 20};
    unit_start(NULL);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        p = hak_malloc(0);
        char *q = hak_resize(p, sizes[i]);
        memset(q, 1, sizes[i]);
        hak_free(q);
        assert_dies(hak_free(p), "freed twice");
    }
    assert_non_null(hak_alloc_zeroed(0));
    assert_int_equal(unit_stat("large", "direct_bytes"), 0);
}

TEST(what_realloc_cuts_off_is_cleared)
{
    static const size_t sizes[][2] = {{200, 120}, {5000, 3000}, {40000, 30000}, {40000000, 39999000}};
    unit_start("HAKMEM_ZERO_ON_FREE=1");
    for (size_t i = 0; i < COUNT(sizes); i++) {
        p = hak_malloc(sizes[i][0]);
        memset(p, 1, sizes[i][0]);
        char *q = hak_resize(p, sizes[i][1]);
        for (size_t at = sizes[i][1]; q == p && at < unit_usable(p); at++)
            assert_int_equal(q[at], 0);
    }
}

TEST(beyond_all_of_them_one_byte_serves)
{
    unit_start(NULL);
    for (unsigned i = 0; i < ALL; i++)
        assert_int_equal(hak_block_usable(hak_malloc(0), "malloc_usable_size"), 0);
    p = hak_malloc(0);
    *p = 1;
    assert_true(hak_block_usable(p, "malloc_usable_size") >= 1);
    hak_free(p);
}

TEST(without_the_range_one_byte_serves)
{
    unit_start(NULL);
    assert_true(hak_init());
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, false);
    *(char *)hak_malloc(0) = 1;
    p = hak_malloc(0);
    assert_false(unit_is_open(p));
}
