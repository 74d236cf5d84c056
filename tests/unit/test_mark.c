/* SPDX-License-Identifier: MIT
 * Small blocks of hardened builds: secrets, encoded links, marks. */
#include "core/malloc/fast.h"

#include <stdio.h>
#include <string.h>

#include "core/base/secret.h"
#include "core/malloc/aligned.h"
#include "core/malloc/block.h"
#include "core/process/start.h"
#include "unit.h"

#define SIZE 200

TEST(each_process_draws_its_own_secrets)
{
    char of[6][17] = {""}, text[2][64];
    if (unit_argument) {
        unit_start(NULL);
        unit_thread();
        dprintf(unit_out, "%016lx %016lx %016lx", hak_secret.key[0], hak_secret.key[2], hak_secret.first);
        return;
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unit_spawn("each_process_draws_its_own_secrets", "tell", text[i], sizeof text[i]), 0);
        assert_int_equal(sscanf(text[i], "%16s %16s %16s", of[3 * i], of[3 * i + 1], of[3 * i + 2]), 3);
    }
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(of[i], of[k]);
}

TEST(core_dumps_leave_them_out)
{
    unsigned long from, to;
    char line[256];
    bool here = false, left_out = false;
    unit_start(NULL);
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (uintptr_t)&hak_sealed >= from && (uintptr_t)&hak_sealed < to;
        else if (here && !strncmp(line, "VmFlags:", 8))
            left_out = strstr(line, " dd") != NULL;
    }
    fclose(maps);
    assert_true(left_out || !hak_is_sealed());
}

static char *a, *b;

static void start(void)
{
    unit_start(NULL);
    do
        a = hak_malloc(SIZE);
    while ((uintptr_t)a % HAK_PAGE == 0); /* the memory before a page may be unreadable */
    b = hak_malloc(SIZE);
    memset(a, 1, SIZE);
    memset(b, 1, SIZE);
}

static void take_two(void)
{
    hak_malloc(SIZE);
    hak_malloc(SIZE);
}

TEST(a_link_is_no_address_and_not_followed_after_a_write)
{
    static const uintptr_t written[] = {0, 16, 0x4141414141414141};
    if (HAK_CACHE_SLOTS)
        skip(); /* its bins have no links */
    start();
    hak_free(a);
    hak_free(b);
    void *link;
    memcpy(&link, b, sizeof link);
    assert_ptr_equal(hak_next_load(b), a);
    assert_int_not_equal((uintptr_t)link >> 32, (uintptr_t)a >> 32);
    for (size_t i = 0; i < COUNT(written); i++) {
        memcpy(b, &written[i], sizeof written[i]);
        assert_dies(take_two(), "written after free");
    }
    hak_next_store(b, (void *)((uintptr_t)a + 8)); /* nor is a link to an address where no block begins */
    assert_dies(take_two(), "written after free");
}

TEST(a_free_block_is_known)
{
    start();
    hak_free(a);
    hak_free(b);
    assert_dies(hak_free(a), "double free");
    assert_dies(hak_resize(a, SIZE + 1), "invalid realloc");
    assert_dies(unit_usable(a), "invalid malloc_usable_size");
}

/* Whether it came from the bin or through the slab. */
TEST(a_block_that_is_handed_out_carries_no_mark)
{
    start();
    for (size_t i = 0; i < 3000; i++) {
        struct unit_block *blocks = unit_blocks(SIZE, 1 + i % 7 * 50);
        for (struct unit_block *block = blocks; block; block = block->next)
            assert_int_not_equal(((uintptr_t *)block)[1], hak_mark_of(block));
        unit_free_blocks(blocks);
    }
}

/* An attacker who knows addresses could compute secrets from links and marks. */
TEST(new_blocks_show_nothing)
{
    static const size_t sizes[] = {15, 31, 64, 1000, 20000};
    unit_start(NULL);
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (unsigned i = 0; i < 500; i++) {
            uintptr_t *words = hak_malloc(sizes[s]);
            assert_int_equal(words[0], 0);
            if (sizes[s] >= 2 * sizeof *words)
                assert_int_equal(words[1], 0);
        }
}

TEST(only_the_start_of_a_block_that_was_handed_out_is_freed)
{
    static const ptrdiff_t wrong[] = {1, 8, 16, -16};
    start();
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_dies(hak_free(a + wrong[i]), "is not the start of a block");
    assert_dies(hak_free(a + 100 * (ptrdiff_t)hak_strides[hak_class_of(SIZE)]), "was never handed out");
}

/* The first one of the slab that is in its free bitmap. */
static char *listed(struct hak_slab *slab)
{
    for (uint32_t i = 0; i < slab->carved; i++)
        if (slab->bitmap[i / 64] >> i % 64 & 1)
            return slab->base + (size_t)i * slab->stride;
    return NULL;
}

static void take_many(void)
{
    for (int i = 0; i < 5000; i++)
        hak_malloc(SIZE);
}

TEST(a_block_in_the_bitmap_is_no_block_of_the_program)
{
    start();
    char *p = listed(hak_space_slab(a));
    if (!p)
        skip(); /* all carved blocks are in the bin */
    assert_dies(hak_free(p), "free");
    assert_dies(hak_resize(p, SIZE), "realloc");
    assert_dies(unit_usable(p), "malloc_usable_size");
    memset(p, 'a', 2 * sizeof(uintptr_t));
    assert_dies(take_many(), "written after free");
}

TEST(no_block_is_freed_by_a_size_that_it_never_had)
{
    static const size_t sizes[] = {1, SIZE, 5000, 20000, 1 << 20, 100 << 20};
    start();
    hak_block_check_size(NULL, 1, SIZE, "free_sized");
    for (size_t i = 0; i < COUNT(sizes); i++) {
        a = hak_alloc_aligned(64, sizes[i] + HAK_CANARY);
        hak_block_check_size(a, 64, sizes[i], "free_sized");
        assert_dies(hak_block_check_size(a, 64, unit_usable(a) + 1, "free_sized"), "invalid free_sized");
        if (sizes[i] > 1000)
            assert_dies(hak_block_check_size(a, 64, sizes[i] / 3, "free_sized"), "invalid free_sized");
        /* no block lies there */
        assert_dies(hak_block_check_size(a, (size_t)1 << 46, sizes[i], "free_sized"), "aligned to 70368744177664");
    }
}
