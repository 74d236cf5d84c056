/* SPDX-License-Identifier: MIT
 * The quarantine of freed blocks: it overwrites them, checks them when they leave, and is bounded. */
#include "core/heap/quarantine.h"

#include <stdio.h>
#include <string.h>

#include "core/malloc/fast.h"
#include "core/malloc/trim.h"
#include "unit.h"

#define SIZE 200
#define MANY 4000 /* blocks of SIZE: more than fit */

static char *victim;

static void free_others(void)
{
    for (int i = 0; i < MANY; i++)
        hak_free(hak_malloc(SIZE));
}

static void free_victim(void)
{
    victim = hak_malloc(SIZE);
    memset(victim, 1, SIZE);
    hak_free(victim);
}

TEST(off_by_default)
{
    unit_start(NULL);
    free_victim();
    assert_int_equal(victim[SIZE - 1], 1);
    assert_ptr_equal(hak_malloc(SIZE), victim);
    assert_int_equal(unit_stat("bins", "quarantined"), 0);
    assert_int_equal(unit_stat("bins", "overwritten"), 0);
}

TEST(a_freed_block_is_held_back)
{
    unit_start("HAKMEM_QUARANTINE_KB=64");
    free_victim();
    assert_int_not_equal(victim[SIZE - 1], 1);
    for (size_t bytes = SIZE; bytes < 48 * HAK_KIB; bytes += hak_strides[hak_class_of(SIZE)]) {
        char *p = hak_malloc(SIZE);
        assert_ptr_not_equal(p, victim);
        hak_free(p);
    }
    assert_true(unit_stat("bins", "quarantined") > 200);
}

/* The quarantine holds no more than the setting says, for any mixture of sizes; and all of its blocks serve again. */
TEST(what_is_held_back_is_bounded)
{
    unit_start("HAKMEM_QUARANTINE_KB=100");
    const struct hak_heap *t = unit_thread();
    for (size_t i = 0; i < 20000; i++) {
        hak_free(hak_malloc(1 + i * 7919 % HAK_SMALL_MAX));
        assert_true(hak_quarantine_bytes(t) <= 100 * HAK_KIB);
    }
    struct hak_census c = unit_census();
    assert_true(c.used * 16 < HAK_MIB);
    hak_trim(0);
    assert_int_equal(hak_quarantine_bytes(t), 0);
    assert_int_equal(unit_census().used, 0);
}

static size_t place;

static void write_and_let_leave(void)
{
    free_victim();
    victim[place] ^= 0x10;
    free_others();
}

/* The block is checked before it is linked. */
static void write_to_the_only_one(void)
{
    free_victim();
    memset(victim, 0, 8);
    hak_free(hak_malloc(SIZE));
}

static void *free_and_write(void *p)
{
    hak_free(p);
    ((char *)p)[50] = 1;
    return NULL;
}

static void *free_and_write_own(void *unused)
{
    (void)unused;
    return free_and_write(hak_malloc(SIZE));
}

TEST(a_write_after_free_is_found_when_the_block_leaves)
{
    char text[64];
    unit_start("HAKMEM_QUARANTINE_KB=64");
    assert_dies(write_to_the_only_one(), "written after free");
    assert_dies(unit_in_thread(free_and_write, hak_malloc(SIZE)), "written after free");
    assert_dies(free_and_write(hak_malloc(SIZE)); hak_trim(0), "written after free");
    assert_dies(unit_in_thread(free_and_write_own, NULL), "written after free");
    free_others();
    snprintf(text, sizeof text, "(class %u, %u-byte blocks) is free, and was written to", hak_class_of(SIZE),
             hak_strides[hak_class_of(SIZE)]);
    for (place = 0; place < hak_class_usable(hak_class_of(SIZE)); place++)
        assert_dies(write_and_let_leave(), text);
    free_victim();
    assert_dies(hak_free(victim), "double free");
}

TEST(a_block_beyond_the_bound_is_overwritten_and_not_held_back)
{
    unit_start("HAKMEM_QUARANTINE_KB=1");
    char *p = memset(hak_malloc(20000), 1, 20000);
    hak_free(p);
    assert_int_not_equal(p[19999], 1);
    assert_int_equal(unit_stat("bins", "quarantined"), 0);
}

static bool is_zero(const char *p, size_t size)
{
    return !p[0] && !memcmp(p, p + 1, size - 1);
}

TEST(free_leaves_zeros_where_it_is_told_to)
{
    static const size_t sizes[] = {SIZE, 1000, 20000, 100000, 5 << 20};
    unit_start("HAKMEM_ZERO_ON_FREE=1");
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char *p = memset(hak_malloc(sizes[i]), 1, sizes[i]);
        hak_free(p);
        assert_true(is_zero(p + 16, sizes[i] - 16));
        assert_ptr_not_equal(hak_malloc(sizes[i]), NULL);
    }
    char *p = memset(hak_malloc(5 << 20), 1, 5 << 20);
    assert_ptr_equal(hak_resize(p, 3 << 20), p);
    assert_true(is_zero(p + (3 << 20), 2 << 20));
    assert_int_equal(p[(3 << 20) - 1], 1);
}
