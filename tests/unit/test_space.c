/* SPDX-License-Identifier: MIT
 * The reserved range: its ladder of sizes, zones, tables, and what is made writable when. */
#include "core/pages/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/malloc/malloc.h"
#include "core/heap/heap.h"
#include "unit.h"

static struct hak_space_stats stats(void)
{
    struct hak_space_stats s;
    hak_space_stats(&s);
    return s;
}

static void start(void)
{
    unit_start(NULL);
    assert_true(hak_init());
}

static char *take(size_t superslabs)
{
    char *p = hak_space_alloc(superslabs, 1, false);
    assert_non_null(p);
    return p;
}

static uint64_t mask(void)
{
    return hak_tags.mask;
}

/* --- the ladder --------------------------------------------------------------------------------------- */

/* Bytes of the one mapping of a rung: descriptors, first metadata, tags, range, and one superslab to align. */
static size_t rung_size(size_t size)
{
    size_t entries = hak_max(size >> HAK_PAGE_LG, 8192);
    return entries * (sizeof(struct hak_slab) + sizeof(uint64_t)) +
           hak_align_up(256 * HAK_KIB + size / HAK_SUPERSLAB / 8, HAK_PAGE) + size + HAK_SUPERSLAB;
}

static void use_everything(void)
{
    for (size_t size = 1; size < 2 * HAK_MIB; size *= 3)
        unit_free_blocks(unit_blocks(hak_max(size, 8), 100));
    unit_census();
}

/* A sanitizer's own maps cut the address space into pieces; elsewhere a missing piece is a failure. */
static bool sanitizer_is_in_the_way(size_t bytes)
{
    void *p = HAK_SANITIZED ? mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : NULL;
    if (p == MAP_FAILED)
        return true;
    if (p)
        munmap(p, bytes);
    return false;
}

/* As a program of its own for each rung; the argument is the exponent. */
TEST(a_rung)
{
    if (!unit_argument)
        return;
    size_t size = (size_t)1 << atoi(unit_argument);
    if (sanitizer_is_in_the_way(rung_size(size)))
        return;
    unit_start(NULL);
    fake_os_limit_maps(rung_size(size));
    assert_true(hak_init());
    assert_int_equal(stats().reserved, size);
    assert_int_equal(hak_tags.header_size, HAK_HEADER_LIMIT && size / HAK_SUPERSLAB >= 3
                                               ? size / HAK_SUPERSLAB / 3 * HAK_SUPERSLAB : 0);
    use_everything();
}

TEST(the_ladder_rung_by_rung)
{
    for (int lg = 40; lg >= 22; lg -= lg > 36 ? 2 : 1) {
        char argument[16];
        snprintf(argument, sizeof argument, "%d", lg);
        if (unit_spawn("a_rung", argument, NULL, 0))
            fail_msg("rung 2^%d", lg);
    }
}

TEST(below_the_last_rung_blocks_get_mappings_of_their_own)
{
    unit_start(NULL);
    fake_os_limit_maps(rung_size(0));
    assert_true(hak_init());
    assert_int_equal(stats().zones, 0);
    fake_os_limit_maps(HAK_SUPERSLAB); /* no further zone either */
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
    assert_null(hak_malloc(HAK_GIB));
    fake_os_allow();
    use_everything(); /* and a zone is found as soon as there may be one */
    assert_int_equal(stats().zones, 1);
}

TEST(without_tables_no_start)
{
    unit_start(NULL);
    fake_os_limit_maps(rung_size(0) - 1);
    assert_int_equal(hak_space_init(), -ENOMEM);
    fake_os_limit_maps(rung_size((size_t)1 << 30));
    assert_int_equal(hak_space_init(), 0);
    assert_int_equal(stats().reserved, (size_t)1 << 30);
}

TEST(a_rung_whose_tables_cannot_be_written_goes_back)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, false);
    assert_int_equal(hak_space_init(), 0);
    assert_int_equal(fake_os_count(HAK_OS_munmap), 1);
    assert_true(stats().reserved < (size_t)1 << 40);
}

#if !HAK_SANITIZED
TEST(at_most_a_quarter_of_the_address_space_limit)
{
    struct rlimit limit = {HAK_GIB, HAK_GIB};
    unit_start(NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_true(hak_init());
    assert_in_range(stats().reserved, HAK_GIB / 32, HAK_GIB / 4);
    use_everything();
}
#define LIMITED T(at_most_a_quarter_of_the_address_space_limit),
#else
#define LIMITED
#endif

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
    size_t before = stats().handed_out;
    char *a = take(1), *b = take(3), *c = take(2);
    hak_space_free(b, 3, HAK_CAUSE_direct_release);
    assert_int_equal(stats().handed_out, before + 3 * HAK_SUPERSLAB);
    char *d = take(2), *e = take(1), *f = take(1);
    assert_ptr_equal(d, b);
    assert_ptr_equal(e, b + 2 * HAK_SUPERSLAB);
    assert_true(f != a && f != c);
    assert_int_equal(stats().handed_out, before + 7 * HAK_SUPERSLAB);
}

TEST(runs_are_found_over_many_words_of_the_bitmap)
{
    start();
    char *all[300];
    for (unsigned i = 0; i < COUNT(all); i++)
        all[i] = take(1);
    for (unsigned i = 0; i < COUNT(all); i++)
        if (i % 2 || (i >= 200 && i < 210))
            hak_space_free(all[i], 1, HAK_CAUSE_direct_release);
    assert_ptr_equal(take(5), all[199]); /* a run over what was freed apart */
    assert_ptr_equal(take(1), all[1]);
    assert_ptr_equal(take(1), all[3]);
}

static char *freed;

static void free_again(void)
{
    hak_space_free(freed, 1, HAK_CAUSE_direct_release);
}

TEST(a_superslab_comes_back_once)
{
    start();
    freed = take(1);
    free_again();
    assert_dies(free_again, "internal check failed");
}

TEST(blocks_with_headers_have_a_zone_of_their_own)
{
    start();
    char *header = hak_space_alloc(1, 1, true), *plain = take(1);
    assert_int_equal(hak_tag_in_header_zone(header), HAK_HEADER_LIMIT != 0);
    assert_false(hak_tag_in_header_zone(plain));
    assert_int_equal(hak_tags.header_size != 0, HAK_HEADER_LIMIT != 0);
    assert_false(hak_tag_in_header_zone(&header));
    assert_false(hak_tag_in_header_zone(NULL));
}

/* A small machine: zones are added until there are no more, then NULL, and what came back serves again. */
TEST(zones_are_added_until_the_end)
{
    unit_start(NULL);
    fake_os_limit_maps(rung_size((size_t)1 << 22));
    assert_true(hak_init());
    size_t n = 0;
    char *p, *last = NULL;
    while ((p = hak_space_alloc(1, 1, false)) && n < 100000) {
        assert_int_equal((uintptr_t)p % HAK_SUPERSLAB, 0);
        last = p;
        n++;
    }
    assert_in_range(n, 8, 99999);
    assert_true(stats().zones > 1);
    assert_int_equal(stats().handed_out, n * HAK_SUPERSLAB);
    hak_space_free(last, 1, HAK_CAUSE_direct_release);
    assert_ptr_equal(take(1), last);
    use_everything(); /* by mappings of their own */
}

/* --- making memory writable ------------------------------------------------------------------------- */

TEST(memory_becomes_writable_in_growing_steps)
{
    start();
    uint64_t before = fake_os_count(HAK_OS_mprotect);
    char *p = take(256 * HAK_MIB / HAK_SUPERSLAB);
    for (size_t done = 0; done < 256 * HAK_MIB; done += HAK_PAGE) {
        assert_int_equal(hak_space_commit(p + done, HAK_PAGE, HAK_CAUSE_superslab_map), 0);
        p[done] = 1;
    }
    assert_true(fake_os_count(HAK_OS_mprotect) - before < 12);
    assert_true(stats().committed >= 256 * HAK_MIB);
}

TEST(near_a_limit_no_more_than_needed)
{
    start();
    char *p = take(2 * HAK_MIB / HAK_SUPERSLAB + 1);
    assert_int_equal(hak_space_commit(p, HAK_PAGE, HAK_CAUSE_superslab_map), 0);
    size_t before = stats().committed;
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, false);
    assert_int_equal(hak_space_commit(p + before, HAK_PAGE, HAK_CAUSE_superslab_map), 0);
    assert_int_equal(stats().committed, before + HAK_PAGE);
    p[before] = 1;
}

TEST(refused_memory_can_be_asked_for_again)
{
    start();
    char *p = take(1);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, true);
    assert_int_equal(hak_space_commit(p, HAK_PAGE, HAK_CAUSE_superslab_map), -ENOMEM);
    assert_int_equal(stats().committed, 0);
    fake_os_allow();
    assert_int_equal(hak_space_commit(p, HAK_PAGE, HAK_CAUSE_superslab_map), 0);
    *p = 1;
}

/* --- the tables --------------------------------------------------------------------------------------- */

TEST(addresses_find_the_head_of_their_slab)
{
    start();
    char *p = hak_malloc(5 * HAK_PAGE);
    struct hak_slab *slab = hak_space_slab(p);
    assert_ptr_equal(slab->base, p);
    for (size_t i = 0; i < 5 * HAK_PAGE; i += 4096)
        assert_ptr_equal(hak_space_slab(p + i), slab);
    assert_ptr_equal(hak_space_page(p + HAK_PAGE), slab + 1);
    hak_free(p);
    assert_null(hak_space_slab(&slab));
    assert_null(hak_space_slab(NULL));
    assert_null(hak_space_page((void *)(uintptr_t)0x123456));
}

static unsigned visited;

static void visit(struct hak_slab *page, void *context)
{
    struct hak_slab *wanted = context;
    visited += page == wanted;
}

TEST(each_page_in_use_is_visited_once)
{
    start();
    void *p = hak_malloc(100);
    hak_space_each_page(visit, hak_space_slab(p));
    assert_int_equal(visited, 1);
    hak_free(p);
}

static void use_address_space(size_t bytes)
{
    char *p = take(bytes / HAK_SUPERSLAB);
    assert_int_equal(hak_space_commit(p, bytes, HAK_CAUSE_superslab_map), 0);
    p[bytes - 1] = 1;
}

/* Frees whose tag was lost go home as foreign ones, and may wait there. */
static void assert_all_back(void)
{
    hak_heap_drain(unit_thread());
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
}

TEST(tags_grow_with_the_range_in_use_and_frees_are_served)
{
    start();
    struct unit_block *small = unit_blocks(64, 5000), *middle = unit_blocks(3000, 500);
    assert_int_equal(mask(), 8191);
    use_address_space(600 * HAK_MIB);
    assert_true(mask() >= 16383);
    struct unit_block *later = unit_blocks(3000, 500);
    use_address_space(2 * HAK_GIB);
    assert_true(mask() >= 65535);
    unit_free_blocks(small);
    unit_free_blocks(middle);
    unit_free_blocks(later);
    assert_all_back();
}

TEST(tags_that_cannot_grow_are_shared)
{
    start();
    struct unit_block *blocks = unit_blocks(3000, 500);
    char *p = take(2 * HAK_GIB / HAK_SUPERSLAB);
    for (size_t done = 0; done < 2 * HAK_GIB; done += 64 * HAK_MIB) {
        fake_os_refuse(HAK_OS_mprotect, 1 + done / (64 * HAK_MIB) % 3, ENOMEM, false);
        hak_space_commit(p + done, 64 * HAK_MIB, HAK_CAUSE_superslab_map);
    }
    fake_os_allow();
    unit_free_blocks(blocks);
    assert_all_back();
}

UNIT_MAIN(T(a_rung), T(the_ladder_rung_by_rung), T(below_the_last_rung_blocks_get_mappings_of_their_own),
          T(without_tables_no_start), T(a_rung_whose_tables_cannot_be_written_goes_back), LIMITED
          T(superslabs_are_aligned_and_apart), T(what_comes_back_is_handed_out_first),
          T(runs_are_found_over_many_words_of_the_bitmap), T(a_superslab_comes_back_once),
          T(blocks_with_headers_have_a_zone_of_their_own), T(zones_are_added_until_the_end),
          T(memory_becomes_writable_in_growing_steps), T(near_a_limit_no_more_than_needed),
          T(refused_memory_can_be_asked_for_again), T(addresses_find_the_head_of_their_slab),
          T(each_page_in_use_is_visited_once), T(tags_grow_with_the_range_in_use_and_frees_are_served),
          T(tags_that_cannot_grow_are_shared))
