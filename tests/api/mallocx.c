/* SPDX-License-Identifier: MIT
 * jemalloc's functions for blocks are served with malloc's: alignment, zeros, sizes, and free of any of their blocks.
 */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mallocx.h"

#define ZERO 0x40
#define CACHE_AND_ARENA (3 << 8 | 5 << 20)

static const size_t sizes[] = {1, 8, 100, 1000, 5000, 40000, 100000, 3000000, 40000000};
#define SIZES (sizeof sizes / sizeof *sizes)

/* The ends of a large block stand for all of it: else most of the time goes to page faults. */
#define END ((size_t)65536)

static int is_filled(const char *p, size_t from, size_t to, char with)
{
    for (size_t i = from; i < to; i = i + 1 == from + END && to - from > 2 * END ? to - END : i + 1)
        if (p[i] != with)
            return 0;
    return 1;
}

static void fill(char *p, size_t size, char with)
{
    size_t end = size < END ? size : END;
    memset(p, with, end);
    memset(p + size - end, with, end);
}

/* So that zeros are not there by chance. */
static void dirty(size_t size)
{
    void *p[8];
    for (unsigned i = 0; i < 8; i++)
        fill(p[i] = malloc(size), size, 0x5a);
    for (unsigned i = 0; i < 8; i++)
        free(p[i]);
}

static void blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SIZES; i++)
        for (int lg = 0; lg <= 16; lg += 4) {
            dirty(sizes[i]);
            char *p = mallocx(sizes[i], lg | ZERO | CACHE_AND_ARENA);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % ((size_t)1 << lg), 0);
            assert_true(malloc_usable_size(p) >= sizes[i]);
            assert_int_equal(sallocx(p, lg), malloc_usable_size(p));
            assert_true(nallocx(sizes[i], lg) >= sizes[i] && nallocx(sizes[i], lg) <= sallocx(p, 0));
            assert_true(is_filled(p, 0, malloc_usable_size(p), 0));
            fill(p, sizes[i], 1);
            if (i % 3 == 0)
                free(p);
            else if (i % 3 == 1)
                dallocx(p, lg);
            else
                sdallocx(p, sizes[i], lg);
        }
}

static void rallocx_keeps_and_zeroes(void **state)
{
    (void)state;
    for (unsigned i = 0; i + 1 < SIZES; i++)
        for (int lg = 0; lg <= 12; lg += 6) {
            dirty(sizes[i + 1]);
            char *p = mallocx(sizes[i], lg);
            size_t old = sallocx(p, 0);
            fill(p, old, 7);
            p = rallocx(p, sizes[i + 1], lg | ZERO);
            assert_int_equal((uintptr_t)p % ((size_t)1 << lg), 0);
            assert_true(is_filled(p, 0, old, 7));
            assert_true(is_filled(p, old, sallocx(p, 0), 0));
            p = rallocx(p, sizes[i], lg);
            assert_int_equal((uintptr_t)p % ((size_t)1 << lg), 0);
            assert_int_equal(p[0], 7);
            old = sallocx(p, lg);
            size_t now = xallocx(p, sizes[i], sizes[i + 1], lg | ZERO);
            assert_true(now >= old && now == sallocx(p, lg) && is_filled(p, old, now, 0));
            dallocx(p, lg);
        }
}

static void too_much_is_refused(void **state)
{
    (void)state;
    errno = 0;
    assert_null(mallocx(PTRDIFF_MAX, 0));
    assert_null(mallocx(PTRDIFF_MAX, 20 | ZERO));
    assert_int_equal(errno, ENOMEM);
    void *p = malloc(100);
    assert_null(rallocx(p, PTRDIFF_MAX, 0));
    assert_null(rallocx(p, PTRDIFF_MAX, 12 | ZERO));
    assert_int_equal(nallocx((size_t)PTRDIFF_MAX + 1, 0), 0);
    assert_int_equal(nallocx((size_t)PTRDIFF_MAX + 1, 12), 0);
    assert_int_equal(nallocx(1, 63), 0);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(rallocx_keeps_and_zeroes),
        cmocka_unit_test(too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
