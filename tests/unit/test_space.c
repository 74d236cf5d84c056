/* SPDX-License-Identifier: MIT
 * The address space: where it is planned, its zones, when they are mapped, other mappings in the way, the tables. */
#include "core/pages/page_heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>

#include "core/heap/decay.h"
#include "core/os/limit.h"
#include "unit.h"

/* The expected places of superslabs are those without fences between them (test_fence.c). */
static void start(void)
{
    unit_init(HAK_HARDENED ? "HAKMEM_GUARD_PAGES=0" : NULL);
}

static char *take(size_t superslabs)
{
    char *p = hak_space_alloc(superslabs, 1, false);
    assert_non_null(p);
    return p;
}

/* --- the plan ------------------------------------------------------------------------------------------ */

static void use_everything(void)
{
    for (size_t size = 1; size < 2 * HAK_MIB; size *= 3)
        unit_free_blocks(unit_blocks(hak_max(size, 8), 100));
    unit_census();
}

static void *occupied;
static size_t occupied_size;

/* Somebody else's mapping. */
static void occupy(void *at, size_t size)
{
    occupied = mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    occupied_size = size;
    assert_ptr_equal(occupied, at);
}

static void assert_not_ours(void)
{
    for (size_t i = 0; i < occupied_size; i += HAK_PAGE) {
        assert_false(hak_space_contains((char *)occupied + i));
        assert_int_equal(((char *)occupied)[i], 0);
    }
}

/* Runs in a process of its own, which receives the place of the previous process's zone. */
TEST(where_it_lies)
{
    char text[32];
    if (!unit_argument)
        return;
    start();
    snprintf(text, sizeof text, "%p", (void *)hak_page_map.base);
    assert_int_equal(write(unit_out, text, strlen(text)), (ssize_t)strlen(text));
}

TEST(each_process_has_its_own_place)
{
    char first[32], next[32];
    if (personality(0xffffffff) & ADDR_NO_RANDOMIZE || getenv("UNIT_RUN_BY")) /* an emulator's are fixed */
        skip();
    assert_int_equal(unit_spawn("where_it_lies", "", first, sizeof first), 0);
    assert_int_equal(unit_spawn("where_it_lies", "", next, sizeof next), 0);
    assert_string_not_equal(first, next);
}

TEST(a_place_that_is_refused_is_no_end)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_mmap, 1, EEXIST, false);
    assert_true(hak_init());
    use_everything();
}

TEST(without_tables_no_start)
{
    unit_start(NULL);
    fake_os_refuse_places(ENOMEM);
    assert_int_equal(hak_space_init(), -ENOMEM);
    assert_in_range(fake_os_count(HAK_OS_mmap), 1, 64);
    fake_os_allow();
    assert_int_equal(hak_space_init(), 0);
    assert_non_null(take(1));
}

TEST(without_superslabs_blocks_get_mappings_of_their_own)
{
    start();
    fake_os_refuse_places(ENOMEM);
    static const size_t sizes[] = {1, 16, 100, 5000, 50000, 200000};
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        uint64_t maps = hak_ledger[HAK_CAUSE_large_map][HAK_OS_mmap].calls;
        char *p = hak_malloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal(hak_ledger[HAK_CAUSE_large_map][HAK_OS_mmap].calls, maps + 1);
        assert_false(hak_space_contains(p));
        assert_true(unit_usable(p) >= sizes[i]);
        memset(p, 7, sizes[i]);
        p = hak_resize(p, 2 * sizes[i]);
        assert_non_null(p);
        assert_int_equal(p[sizes[i] - 1], 7);
        hak_free(p);
    }
    assert_int_equal(unit_space().handed_out, 0);
    fake_os_allow();
    use_everything(); /* and superslabs are found as soon as there may be some */
    assert_true(unit_space().handed_out > 0);
}

/* --- zones ------------------------------------------------------------------------------------------- */

TEST(superslabs_are_aligned_and_apart)
{
    start();
    char *last = NULL;
    for (size_t align = 1; align <= 64; align *= 2)
        for (size_t n = 1; n < 4; n++) {
            char *p = hak_space_alloc(n, align, false);
            assert_int_equal((uintptr_t)p % (align * HAK_SUPERSLAB), 0);
            assert_true(hak_space_contains(p) && hak_space_contains(p + n * HAK_SUPERSLAB - 1));
            assert_ptr_not_equal(p, last);
            last = p;
        }
}

TEST(what_comes_back_is_handed_out_first)
{
    start();
    size_t before = unit_space().handed_out;
    char *a = take(1), *b = take(3), *c = take(2);
    hak_space_free(b, 3, HAK_CAUSE_direct_release);
    assert_int_equal(unit_space().handed_out, before + 3 * HAK_SUPERSLAB);
    char *d = take(2), *e = take(1), *f = take(1);
    assert_ptr_equal(d, b);
    assert_ptr_equal(e, b + 2 * HAK_SUPERSLAB);
    assert_true(f != a && f != c);
    assert_int_equal(unit_space().handed_out, before + 7 * HAK_SUPERSLAB);
}

TEST(runs_are_found_over_many_words_of_the_bitmap)
{
    start();
    char *all[300];
    size_t first = unit_space().handed_out / HAK_SUPERSLAB; /* taken by the start */
    for (unsigned i = 0; i < COUNT(all); i++)
        all[i] = take(1);
    for (size_t i = 64 - first; i < 192; i += 64) { /* the first one of a word */
        hak_space_free(all[i], 1, HAK_CAUSE_trim);
        assert_ptr_equal(take(1), all[i]);
    }
    for (unsigned i = 0; i < COUNT(all); i++)
        if (i % 2 || (i >= 200 && i < 210))
            hak_space_free(all[i], 1, HAK_CAUSE_direct_release);
    assert_ptr_equal(take(5), all[199]); /* a run over superslabs that were freed separately */
    assert_ptr_equal(take(1), all[1]);
    assert_ptr_equal(take(1), all[3]);
}

TEST(a_superslab_comes_back_once)
{
    start();
    char *freed = take(1);
    hak_space_free(freed, 1, HAK_CAUSE_direct_release);
    assert_dies(hak_space_free(freed, 1, HAK_CAUSE_direct_release), "internal check failed");
}

TEST(blocks_with_headers_have_a_zone_of_their_own)
{
    start();
    assert_false(hak_tag_in_header_zone((void *)hak_page_map.base));
    char *header = hak_space_alloc(1, 1, HAK_HEADER_LIMIT != 0), *plain = take(1);
    assert_int_equal(hak_tag_in_header_zone(header), HAK_HEADER_LIMIT != 0);
    assert_false(hak_tag_in_header_zone(plain));
    assert_false(hak_tag_in_header_zone(&header));
    assert_false(hak_tag_in_header_zone(NULL));
    if (HAK_HEADER_LIMIT) /* any code may map a planned address */
        assert_false(hak_tag_in_header_zone(header + HAK_GIB));
}

#if HAK_HEADER_LIMIT
TEST(a_header_zone_in_the_way_of_others_ends)
{
    start();
    char *p = hak_space_alloc(1, 1, true);
    assert_non_null(p);
    occupy(p + 64 * HAK_MIB, HAK_PAGE);
    while (hak_space_alloc(1, 1, true))
        assert_true(unit_space().handed_out <= 64 * HAK_MIB);
    assert_int_equal(unit_space().handed_out, 64 * HAK_MIB);
    assert_false(hak_tag_in_header_zone(occupied));
    use_everything();
    assert_not_ours();
}
#endif

TEST(a_zone_goes_on_beyond_what_others_have_mapped)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it leaves a program too few addresses */
#endif
    start();
    char *first = take(1), *p = first;
    unsigned jumps = 0;
    occupy(first + 10 * HAK_MIB + HAK_PAGE, HAK_MIB);
    for (size_t n = 2; n <= 400 * HAK_MIB / HAK_SUPERSLAB; n++) {
        char *next = take(1);
        jumps += next != p + HAK_SUPERSLAB;
        memset(p = next, 1, HAK_PAGE);
        assert_ptr_equal(hak_space_page(next), hak_space_page(first) + (n - 1) * HAK_SUPERSLAB_PAGES);
        assert_int_equal(unit_space().handed_out, n * HAK_SUPERSLAB);
    }
    assert_int_equal(jumps, 1);
    occupy(p + 256 * HAK_MIB, HAK_PAGE); /* more than is mapped ahead */
    for (unsigned i = 0; i < 2 * HAK_GIB / HAK_SUPERSLAB; i++)
        *take(1) = 1;
    use_everything();
    assert_not_ours();
}

TEST(tables_that_others_are_in_the_way_of_end_the_plan)
{
    enum { TOGETHER = 8192 }; /* descriptors, of 512 MiB */
    start();
    size_t index = (size_t)(hak_space_page(take(1)) - hak_page_map.descriptors);
    occupy(hak_page_map.descriptors + ((hak_align_up(index + 1, TOGETHER)) & hak_page_map.mask), HAK_PAGE);
    while (hak_space_alloc(1, 1, false))
        assert_true(unit_space().handed_out <= TOGETHER * HAK_PAGE);
    assert_int_equal(unit_space().handed_out, (hak_align_up(index + 1, TOGETHER) - index) * HAK_PAGE);
    use_everything(); /* by mappings of their own */
    assert_not_ours();
}

/* --- mapping ------------------------------------------------------------------------------------------- */

TEST(memory_is_mapped_in_growing_steps)
{
    start();
    uint64_t before = fake_os_count(HAK_OS_mmap);
    for (size_t done = 0; done < 512 * HAK_MIB; done += HAK_SUPERSLAB)
        memset(take(1), 1, HAK_SUPERSLAB / 64);
    assert_true(fake_os_count(HAK_OS_mmap) - before < 20);
    assert_in_range(unit_space().mapped, 512 * HAK_MIB, 512 * HAK_MIB + 64 * HAK_MIB);
}

TEST(near_a_limit_no_more_than_needed)
{
    start();
    take(4);
    size_t before = unit_space().mapped;
    fake_os_refuse(HAK_OS_mmap, 1, ENOMEM, false);
    while (unit_space().mapped == before)
        *take(1) = 1;
    assert_int_equal(unit_space().mapped, before + HAK_SUPERSLAB);
}

TEST(a_trim_lets_go_of_the_lock_for_each_superslab)
{
    enum { N = 8 };
    start();
    char *p = take(N);
    hak_space_free(p, N, HAK_CAUSE_trim);
    if (!unit_limit_addresses())
        skip();
    size_t mapped = unit_space().mapped;
    uint64_t taken = hak_space_lock.taken;
    hak_space_trim();
    assert_true(hak_space_lock.taken >= taken + N);
    assert_true(unit_space().mapped <= mapped - N * HAK_SUPERSLAB);
    assert_ptr_equal(take(N), p);
    memset(p, 1, N * HAK_SUPERSLAB);
}

/* --- the tables --------------------------------------------------------------------------------------- */

/* Under a limit on address space, a trim unmaps what is free. */
TEST(a_trim_makes_few_holes)
{
    void *p[40];
    start();
    for (unsigned i = 0; i < COUNT(p); i++)
        p[i] = take(1);
    for (unsigned i = 0; i < COUNT(p); i += 2)
        hak_space_free(p[i], 1, HAK_CAUSE_trim);
    if (!unit_limit_addresses())
        skip();
    HAK_STORE_RELAXED(&hak_limit_mappings, 10);
    hak_space_trim();
    assert_in_range(fake_os_count(HAK_OS_munmap), 1, 11);
    for (unsigned i = 0; i < COUNT(p); i += 2)
        memset(take(1), 1, HAK_SUPERSLAB);
}

TEST(addresses_find_the_head_of_their_slab)
{
    start();
    char *p = hak_malloc(5 * HAK_PAGE);
    struct hak_slab *slab = hak_space_slab(p);
    assert_ptr_equal(slab->base, p);
    for (size_t i = 0; i < 5 * HAK_PAGE; i += 4096)
        assert_ptr_equal(hak_space_slab(p + i), slab);
    assert_ptr_equal(hak_space_page(p + HAK_PAGE), slab + 1);
    assert_ptr_equal(hak_pages_describe(p + HAK_PAGE, 2, true), slab + 1); /* whatever its pages were before */
    assert_ptr_equal(hak_space_slab(p + HAK_PAGE), slab + 1);
    assert_ptr_equal(hak_space_slab(p + 2 * HAK_PAGE), slab + 1);
    hak_pages_describe(p, 5, false);
    hak_free(p);
    assert_null(hak_space_slab(&slab));
    assert_null(hak_space_slab(NULL));
    assert_null(hak_space_page((void *)(uintptr_t)0x123456));
}

static void use_address_space(size_t bytes)
{
    take(bytes / HAK_SUPERSLAB)[bytes - 1] = 1;
}

/* Blocks whose tag was lost are freed as remote blocks, and may wait in their slab. */
static void assert_all_back(void)
{
    hak_bins_flush(unit_thread());
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
}

TEST(tags_grow_with_the_range_in_use_and_frees_are_served)
{
    start();
    struct unit_block *small = unit_blocks(64, 5000), *middle = unit_blocks(3000, 500);
    assert_int_equal(hak_tags.mask, 8191);
    use_address_space(600 * HAK_MIB);
    assert_true(hak_tags.mask >= 16383);
    struct unit_block *later = unit_blocks(3000, 500);
    use_address_space(2 * HAK_GIB);
    assert_true(hak_tags.mask >= 65535);
    unit_free_blocks(small);
    unit_free_blocks(middle);
    unit_free_blocks(later);
    assert_all_back();
}

TEST(tags_that_cannot_grow_are_shared)
{
    start();
    struct unit_block *blocks = unit_blocks(3000, 500);
    occupy((char *)(hak_tags.table + 8192), HAK_PAGE);
    use_address_space(2 * HAK_GIB);
    assert_int_equal(hak_tags.mask, 8191);
    struct unit_block *later = unit_blocks(3000, 500);
    unit_free_blocks(blocks);
    unit_free_blocks(later);
    assert_all_back();
    assert_not_ours();
}

static const struct {
    const char *settings;
    bool huge;
} wishes[] = {{"HAKMEM_THP=always", true}, {"HAKMEM_THP=never", false}};

TEST_EACH(huge_pages_as_the_setting_says, wishes)
{
    unit_init(row->settings);
    hak_space_free(take(1), 1, HAK_CAUSE_trim);
    uint64_t advice = hak_ledger[HAK_CAUSE_huge_page][HAK_OS_madvise].calls;
    assert_in_range(advice, 1, hak_ledger[HAK_CAUSE_superslab_map][HAK_OS_mmap].calls + row->huge);
    assert_int_equal(fake_os_huge_bytes(), row->huge ? unit_space().mapped + HAK_SUPERSLAB : 0); /* mapped again, too */
}

TEST(the_quick_lookup_knows_all_of_the_first_zone)
{
    start();
    char *base = (char *)hak_page_map.base;
    for (unsigned i = 0; i < 3; i++) {
        take(8 * HAK_MIB / HAK_SUPERSLAB);
        size_t end = 0;
        while (hak_space_contains(base + end))
            end += HAK_SUPERSLAB;
        assert_int_equal(hak_page_map.size, HAK_HEADER_LIMIT ? hak_page_map.size : end);
    }
}

TEST(tags_of_512_mib_do_until_there_is_more)
{
    start();
    take(512 * HAK_MIB / HAK_SUPERSLAB);
    assert_int_equal(unit_space().mapped, 512 * HAK_MIB);
    assert_int_equal(hak_tags.mask, 8191);
    take(1);
    assert_int_equal(hak_tags.mask, 16383);
}

/* Neither of them needs more tags than there are. */
TEST(tags_grow_where_two_zones_share_them)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it leaves a program too few addresses */
#endif
    start();
    take(256 * HAK_MIB / HAK_SUPERSLAB);
    occupy((char *)hak_page_map.base + hak_page_map.size, HAK_PAGE);
    take(200 * HAK_MIB / HAK_SUPERSLAB);
    assert_int_equal(hak_tags.mask, 8191);
    take(100 * HAK_MIB / HAK_SUPERSLAB);
    assert_int_equal(hak_tags.mask, 16383);
}

TEST(all_of_a_heap_that_is_not_small_has_a_name)
{
    start();
    take(8 * HAK_MIB / HAK_SUPERSLAB);
    uint64_t before = fake_os_calls().bytes[HAK_OS_prctl];
    for (size_t mapped = 0; mapped < 128 * HAK_MIB; mapped = unit_space().mapped)
        take(1);
    assert_int_equal(fake_os_calls().bytes[HAK_OS_prctl] - before, unit_space().mapped);
}
