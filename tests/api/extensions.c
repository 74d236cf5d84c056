/* SPDX-License-Identifier: MIT
 *
 * What hakmem.h has beyond the C library's functions, as a program calls it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"

const char *hakmem_conf = "HAKMEM_PURGE_DELAY_MS=54321 HAKMEM_SS_HOT_SLABS=3";

static void the_program_has_settings(void **state)
{
    char value[256];
    (void)state;
    assert_int_equal(hakmem_get("HAKMEM_PURGE_DELAY_MS", value, sizeof value), 0);
    assert_string_equal(value, "54321");
    assert_int_equal(hakmem_get("HAKMEM_SS_HOT_SLABS", value, sizeof value), 0);
    assert_string_equal(value, "5"); /* by the environment */
}

static void figures_move(void **state)
{
    uint64_t before, after, resident;
    (void)state;
    void *p = hakmem_malloc(1);
    assert_int_equal(hakmem_read(HAKMEM_STAT_LIVE, &before), 0);
    char *block = hakmem_malloc(10000000);
    assert_int_equal(hakmem_read(HAKMEM_STAT_LIVE, &after), 0);
    assert_int_equal(after - before, hakmem_malloc_usable_size(block) + CANARY);
    assert_true(hakmem_read(HAKMEM_STAT_RESIDENT, &resident) == 0 && resident > 0);
    for (int i = HAKMEM_STAT_LIVE; i <= HAKMEM_STAT_LIMIT; i++)
        assert_int_equal(hakmem_read((enum hakmem_stat)i, &after), 0);
    assert_int_equal(hakmem_read((enum hakmem_stat)(HAKMEM_STAT_LIMIT + 1), &after), -EINVAL);
    assert_int_equal(hakmem_read((enum hakmem_stat) - 1, &after), -EINVAL);
    hakmem_free(block);
    hakmem_free(p);
}

static void sizes_are_good(void **state)
{
    (void)state;
    for (size_t size = 1; size < 3000000; size += 1 + size / 7) {
        void *p = hakmem_malloc(size), *q = hakmem_malloc(hakmem_good_size(size));
        assert_true(hakmem_good_size(size) >= size && hakmem_malloc_usable_size(p) >= hakmem_good_size(size));
        assert_int_equal(hakmem_good_size(hakmem_good_size(size)), hakmem_good_size(size));
        hakmem_free(p);
        hakmem_free(q);
    }
    assert_int_equal(hakmem_good_size(SIZE_MAX), 0);
}

static void expand_stays(void **state)
{
    (void)state;
    for (size_t size = 10; size < 100000000; size *= 10) {
        char *p = hakmem_malloc(size);
        memset(p, 7, size);
        char *q = hakmem_expand(p, size * 3);
        assert_true(q == NULL || (q == p && hakmem_malloc_usable_size(p) >= size * 3));
        if (q)
            memset(p + size, 7, size * 2);
        assert_ptr_equal(hakmem_expand(p, size), p);
        assert_null(hakmem_expand(p, SIZE_MAX));
        assert_true(p[0] == 7 && p[size - 1] == 7);
        hakmem_free(p);
    }
    assert_null(hakmem_expand(NULL, 1));
}

static void aligned_blocks_are_resized(void **state)
{
    (void)state;
    for (size_t align = 1; align <= 1 << 20; align *= 4) {
        unsigned char *p = NULL;
        for (size_t size = 1; size < 8000000; size *= 5) {
            p = hakmem_aligned_realloc(p, align, size);
            assert_true(p && (uintptr_t)p % align == 0);
            assert_true(size == 1 || (p[0] == (unsigned char)align && p[size / 5 - 1] == (unsigned char)align));
            memset(p, (int)align, size);
        }
        p = hakmem_aligned_realloc(p, align, 100);
        assert_true((uintptr_t)p % align == 0 && p[99] == (unsigned char)align);
        assert_null(hakmem_aligned_realloc(p, align, SIZE_MAX / 2 + 2));
        assert_true(errno == ENOMEM && p[99] == (unsigned char)align);
        assert_null(hakmem_aligned_realloc(p, align, 0));
        for (size_t size = 1; size < 8000000; size *= 5) {
            p = hakmem_aligned_calloc(align, size, 2);
            assert_true(p && (uintptr_t)p % align == 0);
            for (size_t i = 0; i < 2 * size; i++)
                assert_true(p[i] == 0);
            memset(p, 1, 2 * size);
            hakmem_free(p);
        }
    }
    errno = 0;
    assert_true(hakmem_aligned_calloc(16, SIZE_MAX / 2, 4) == NULL && errno == ENOMEM);
    assert_true(hakmem_aligned_calloc(24, 1, 1) == NULL && errno == EINVAL);
    errno = 0;
    assert_true(hakmem_aligned_realloc(NULL, 0, 1) == NULL && errno == EINVAL);
}

static int refusals;

static int refuse(size_t wanted, void *context)
{
    refusals += wanted >= 50000000 && context == &refusals;
    hakmem_free(hakmem_malloc(100)); /* it may allocate */
    return 0;
}

static void a_limit_is_hard(void **state)
{
    (void)state;
    uint64_t limit;
    assert_int_equal(hakmem_limit(40000000, refuse, &refusals), 0);
    assert_int_equal(hakmem_read(HAKMEM_STAT_LIMIT, &limit), 0);
    assert_int_equal(limit, 40000000);
    errno = 0;
    assert_null(hakmem_malloc(50000000));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(refusals, 1);
    assert_int_equal(hakmem_limit(0, NULL, NULL), 0);
    void *p = hakmem_malloc(50000000);
    assert_non_null(p);
    hakmem_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_has_settings),
        cmocka_unit_test(figures_move),
        cmocka_unit_test(sizes_are_good),
        cmocka_unit_test(expand_stays),
        cmocka_unit_test(aligned_blocks_are_resized),
        cmocka_unit_test(a_limit_is_hard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
