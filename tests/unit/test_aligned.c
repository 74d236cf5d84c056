/* SPDX-License-Identifier: MIT */
#include "core/malloc/aligned.h"

#include <string.h>

#include "core/heap/bins.h"
#include "hakmem.h"
#include "sizes.h"
#include "unit.h"

static bool reads_zero(const char *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i])
            return false;
    return true;
}

TEST(zeroed_memory_is_zero_also_when_used_before)
{
    unit_start(NULL);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            char *p = hak_alloc_zeroed(sizes[i]);
            assert_non_null(p);
            assert_true(reads_zero(p, sizes[i]));
            memset(p, 0xff, sizes[i]);
            hak_free(p);
        }
}

TEST(alignments)
{
    unit_start(NULL);
    for (size_t align = 1; align <= 8 * HAK_MIB; align *= 2)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            char *p = hak_alloc_aligned(align, sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            assert_true(unit_usable(p) >= sizes[i]);
            memset(p, 3, sizes[i]);
            hak_free(p);
        }
    hak_bins_flush(unit_thread());
    assert_int_equal(unit_census().used, 0);
    assert_int_equal(unit_census().live_large, 0);
}

TEST(what_is_too_large_is_refused)
{
    unit_start(NULL);
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 70000, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX};
    for (unsigned i = 0; i < COUNT(huge); i++) {
        errno = 0;
        assert_null(hakmem_malloc(huge[i]));
        assert_int_equal(errno, ENOMEM);
        assert_null(hak_alloc_zeroed(huge[i]));
        for (size_t align = 8; align; align *= 2)
            assert_null(hak_alloc_aligned(align, huge[i]));
    }
    assert_null(hak_alloc_aligned((size_t)1 << 63, 1));
}
