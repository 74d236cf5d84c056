/* SPDX-License-Identifier: MIT
 * Inaccessible pages beside the library's mappings: where they lie, how many there are, and that the library does
 * without them if the kernel refuses. */
#include "core/os/fence.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/malloc/malloc.h"
#include "core/os/limit.h"
#include "core/os/meta.h"
#include "unit.h"

#define DIRECT (128 * HAK_MIB)

static uint64_t protects(void)
{
    return hak_ledger[HAK_CAUSE_guard][HAK_OS_mprotect].calls;
}

static void assert_fenced(const char *p, size_t size)
{
    assert_true(unit_is_open(p) && unit_is_open(p + size - 1));
    assert_false(unit_is_open(p - 1));
    assert_false(unit_is_open(p + size));
}

TEST(runs_of_superslabs_have_fences)
{
    char *run[20];
    unit_init(NULL);
    for (size_t i = 0; i < COUNT(run); i++) {
        run[i] = hak_space_alloc(1 + i % 3, 1, false);
        assert_fenced(run[i], (1 + i % 3) * HAK_SUPERSLAB);
    }
    struct hak_space_stats s;
    hak_space_stats(&s);
    assert_true(s.handed_out <= 41 * HAK_SUPERSLAB); /* fences are not handed out */
    uint64_t before = protects();
    hak_space_free(run[4], 2, HAK_CAUSE_trim);
    assert_ptr_equal(hak_space_alloc(2, 1, false), run[4]); /* between the fences that are there */
    assert_int_equal(protects(), before);
}

TEST(metadata_and_tables_have_fences)
{
    unit_init(NULL);
    size_t size = 4 * HAK_MIB; /* more than any chunk has left: one of its own */
    char *p = hak_meta_alloc(size);
    memset(p, 1, size);
    assert_fenced(p, size);
    char *tags = (char *)hak_tags.table, *end = (char *)(hak_page_map.descriptors + hak_page_map.mask + 1);
    assert_true(unit_is_open(end - 1) && unit_is_open(tags) && unit_is_open(end + HAK_PAGE));
    assert_false(unit_is_open(end));
    assert_false(unit_is_open(tags - 1));
    assert_false(unit_is_open(tags + (HAK_LOAD_RELAXED(&hak_tags.mask) + 1) * sizeof(uint64_t)));
}

TEST(a_direct_mapping_has_fences_and_keeps_them)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT);
    assert_fenced(p, DIRECT);
    p[5] = 7;
    uint64_t unmapped = fake_os_calls().bytes[HAK_OS_munmap];
    p = hak_resize(p, 2 * DIRECT);
    assert_int_equal(p[5], 7);
    assert_fenced(p, 2 * DIRECT);
    assert_int_equal(unit_stat("large", "remapped"), 1);
    /* the fences alone: what lay between them has moved, and others may be there */
    assert_int_equal(fake_os_calls().bytes[HAK_OS_munmap] - unmapped, 2 * hak_os_page_size());
    p = hak_resize(p, DIRECT + 1);
    assert_fenced(p, DIRECT + hak_os_page_size());
    hak_free(p);
    assert_false(unit_is_open(p));
    assert_false(unit_is_open(p - 1));
    struct fake_calls seen = fake_os_calls();
    assert_int_equal(seen.failed[HAK_OS_munmap], 0);
    p = hak_alloc_aligned(DIRECT, DIRECT);
    assert_int_equal((uintptr_t)p % DIRECT, 0);
    assert_fenced(p, DIRECT);
    hak_free(p);
    assert_false(unit_is_open(p));
}

TEST(their_number_is_bounded)
{
    unit_init("HAKMEM_GUARD_PAGES=9");
    for (unsigned i = 0; i < 20; i++)
        assert_true(unit_is_open(hak_space_alloc(1, 1, false)));
    assert_true(protects() <= 9);
    assert_true(unit_is_open(hak_malloc(DIRECT)));
}

TEST(they_split_few_mappings)
{
    HAK_STORE_RELAXED(&hak_limit_mappings, 30);
    unit_init(NULL);
    for (unsigned i = 0; i < 20; i++)
        assert_true(unit_is_open(hak_space_alloc(1, 1, false)));
    assert_true(protects() <= 15);
}

TEST(those_of_a_mapping_that_is_gone_serve_again)
{
    unit_start("HAKMEM_GUARD_PAGES=20");
    for (unsigned i = 0; i < 100; i++) {
        char *p = hak_malloc(DIRECT);
        assert_fenced(p, DIRECT);
        p = hak_resize(p, 2 * DIRECT);
        assert_fenced(p, 2 * DIRECT);
        hak_free(p);
    }
}

static const enum { SETTING, LIMITED, LOCKS } reasons[] = {SETTING, LIMITED, LOCKS};

/* A limited process has none in its heap, nor has one that locks what it maps. */
TEST_EACH(none_where_they_would_do_harm_or_the_setting_says_so, reasons)
{
    unit_start(*row == SETTING ? "HAKMEM_GUARD_PAGES=0" : NULL);
    if (*row == LIMITED)
        assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){4 * HAK_GIB, 4 * HAK_GIB}), 0);
    assert_true(hak_init());
    if (*row == LOCKS && mlockall(MCL_FUTURE))
        skip();
    uint64_t before = *row == LOCKS ? protects() : 0;
    assert_non_null(hak_space_alloc(8, 1, false));
    assert_non_null(hak_space_alloc(8, 1, false));
    if (*row == SETTING) {
        assert_non_null(hak_malloc(DIRECT));
        assert_int_equal(hak_ledger[HAK_CAUSE_guard][HAK_OS_mincore].calls, 0);
    }
    assert_int_equal(protects(), before);
    munlockall();
}

TEST(a_refusal_leaves_them_out)
{
    unit_init(NULL);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, true);
    char *p = hak_malloc(DIRECT);
    p[5] = 7;
    p = hak_resize(p, 2 * DIRECT);
    assert_int_equal(p[5], 7);
    hak_free(p);
    for (unsigned i = 0; i < 8; i++)
        assert_non_null(hak_space_alloc(1, 1, false));
    assert_non_null(hak_meta_alloc(4 * HAK_MIB));
    fake_os_allow();
    assert_int_equal(unit_stat("large", "direct_bytes"), 0);
    assert_fenced(hak_malloc(DIRECT), DIRECT);
}

TEST(a_refused_move_leaves_the_block)
{
    unit_start(NULL);
    char *p = hak_malloc(DIRECT);
    p[5] = 7;
    uint64_t mapped = fake_os_calls().bytes[HAK_OS_mmap];
    fake_os_refuse(HAK_OS_mremap, 1, ENOMEM, false);
    char *q = hak_resize(p, 2 * DIRECT); /* by a copy */
    assert_int_equal(q[5], 7);
    assert_fenced(q, 2 * DIRECT);
    assert_false(unit_is_open(p));
    struct fake_calls seen = fake_os_calls();
    assert_true(seen.bytes[HAK_OS_mmap] - mapped - seen.bytes[HAK_OS_munmap] <= DIRECT);
}
