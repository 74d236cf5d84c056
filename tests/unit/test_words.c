/* SPDX-License-Identifier: MIT */
#include "core/base/words.h"

#include "unit.h"

TEST(words)
{
    assert_int_equal(hak_align_up(0, 16), 0);
    assert_int_equal(hak_align_up(1, 16), 16);
    assert_int_equal(hak_align_up(16, 16), 16);
    assert_int_equal(hak_align_up(4097, 4096), 8192);
    assert_int_equal(hak_min(1, 2), 1);
    assert_int_equal(hak_min(2, 1), 1);
    assert_int_equal(hak_max(1, 2), 2);
    assert_int_equal(hak_max(2, 2), 2);
    assert_false(hak_is_pow2(0));
    for (unsigned lg = 0; lg < 64; lg++) {
        assert_true(hak_is_pow2((size_t)1 << lg));
        assert_int_equal(hak_is_pow2(((size_t)1 << lg) - 1), lg == 1);
    }
}
