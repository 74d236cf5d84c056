/* SPDX-License-Identifier: MIT */
#include "core/malloc/resize.h"

#include <string.h>

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

TEST(a_block_of_pages_gives_back_what_a_smaller_class_saves)
{
    unit_start(NULL);
    char *blocks[64];
    for (unsigned i = 0; i < 64; i++) {
        blocks[i] = hak_malloc(8192);
        blocks[i][4199] = 7;
        assert_ptr_equal(hak_resize(blocks[i], 6200), blocks[i]);
        blocks[i] = hak_resize(blocks[i], 4200);
        assert_int_equal(blocks[i][4199], 7);
        assert_in_range(unit_usable(blocks[i]), 4200, 5120);
    }
    for (unsigned i = 0; i < 64; i++)
        hak_free(blocks[i]);
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

/* Resizes by 8 bytes at a time; returns the number of system calls. */
static uint64_t step(char **p, size_t from, size_t to)
{
    uint64_t before = fake_os_total();
    for (size_t size = from, next; size != to; size = next) {
        next = from < to ? size + 8 : size - 8;
        assert_non_null(*p = hak_resize(*p, next));
        memcpy(*p + next - 8, &next, 8);
    }
    for (size_t size = 8; size <= to; size += 8)
        if (memcmp(*p + size - 8, &size, 8))
            fail_msg("after %zu to %zu: content at %zu", from, to, size);
    return fake_os_total() - before;
}

/* Fences move with a block, by six calls; without them, growth takes ever longer steps. */
TEST(an_array_resized_by_8_bytes_makes_few_calls)
{
    enum { MIDDLE = 4 * HAK_MIB, END = 16 * HAK_MIB };
    const uint64_t steps = (HAK_HARDENED ? 6 : 1) * (END / HAK_PAGE);
    unit_start(NULL);
    char *p = hak_malloc(8);
    assert_in_range(step(&p, 0, MIDDLE), 1, HAK_HARDENED ? steps : 30);
    assert_in_range(step(&p, MIDDLE, END), 1, HAK_HARDENED ? steps : 30);
    assert_int_equal(step(&p, END, END - 800) + step(&p, END - 800, END) + step(&p, END, END - 800), 0);
    assert_in_range(step(&p, END - 800, MIDDLE), 1, steps);
    assert_in_range(step(&p, MIDDLE, 8), 1, steps);
    hak_free(p);
}
