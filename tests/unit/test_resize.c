/* SPDX-License-Identifier: MIT */
#include "core/malloc/resize.h"

#include "unit.h"

TEST(a_block_stays_in_place_until_it_is_half_empty)
{
    unit_start(NULL);
    void *p = hak_malloc(1000), *span = hak_malloc(200000);
    assert_ptr_equal(hak_resize(p, unit_usable(p)), p);
    assert_ptr_equal(hak_resize(p, 900), p);
    assert_ptr_equal(hak_resize(span, 190000), span);
    hak_free(span);
    size_t half = unit_usable(p) / 2;
    assert_ptr_equal(hak_resize(p, half), p);
    char *q = hak_resize(p, half - 1);
    assert_ptr_not_equal(q, p);
    hak_free(q);
}

TEST(a_failed_resize_leaves_the_block)
{
    unit_start(NULL);
    char *p = hak_malloc(100000);
    p[99999] = 5;
    assert_null(hak_resize(p, (size_t)PTRDIFF_MAX + 1));
    fake_os_refuse_any(1, ENOMEM, true);
    assert_null(hak_resize(p, 300 * HAK_MIB));
    fake_os_allow();
    assert_int_equal(p[99999], 5);
    hak_free(p);
}
