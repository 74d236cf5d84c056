/* SPDX-License-Identifier: MIT */
#include "frontends/large/spares.h"

#include <stdlib.h>
#include <string.h>

#include "core/os/limit.h"
#include "unit.h"

#define SIZE (80 * HAK_MIB)
enum { N = 20 };

static uint64_t unmapped(void)
{
    return hak_ledger[HAK_CAUSE_large_unmap][HAK_OS_munmap].calls;
}

static void take(char **blocks, size_t size)
{
    for (unsigned i = 0; i < N; i++) {
        assert_non_null(blocks[i] = hak_malloc(size));
        blocks[i][0] = 1;
    }
}

TEST(what_would_split_a_mapping_beyond_the_bound_stays)
{
    unit_start(NULL);
    char *blocks[N];
    HAK_STORE_RELAXED(&hak_limit_mappings, 4);
    take(blocks, SIZE);
    size_t held = hak_budget_held();
    for (unsigned i = 1; i < N - 1; i += 2)
        hak_free(blocks[i]);
    size_t kept = hak_registry_spare_bytes() / SIZE;
    assert_int_equal(kept + unmapped(), N / 2 - 1);
    assert_true(HAK_HARDENED || kept >= N / 2 - 2); /* one may lie beside a gap */
    assert_int_equal(held - hak_budget_held(), (N / 2 - 1) * SIZE);
    uint64_t mapped = fake_os_count(HAK_OS_mmap);
    for (unsigned i = 0; i < kept; i++) {
        char *p = i % 2 ? hak_malloc(SIZE - i * HAK_MIB) : hak_alloc_zeroed(SIZE - i * HAK_MIB);
        assert_int_equal(p[0], 0);
        assert_int_equal(unit_usable(p), SIZE - i * HAK_MIB);
        memset(p, 1, SIZE - i * HAK_MIB);
    }
    assert_int_equal(fake_os_count(HAK_OS_mmap), mapped);
    assert_int_equal(hak_registry_spare_bytes(), 0);
}

TEST(below_the_bound_all_are_unmapped)
{
    unit_start(NULL);
    char *blocks[N];
    take(blocks, SIZE);
    for (unsigned i = 0; i < N; i++)
        hak_free(blocks[i]);
    assert_int_equal(unmapped(), N);
    assert_int_equal(hak_registry_spare_bytes(), 0);
}

TEST(a_spare_serves_what_is_not_longer)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_munmap, 1, ENOMEM, true);
    hak_free(hak_malloc(SIZE));
    fake_os_allow();
    assert_int_equal(hak_registry_spare_bytes(), SIZE);
    assert_non_null(hak_malloc(SIZE + HAK_PAGE));
    assert_int_equal(hak_registry_spare_bytes(), SIZE);
    char *p = hak_alloc_aligned(HAK_MIB, SIZE - HAK_MIB);
    assert_int_equal((uintptr_t)p % HAK_MIB, 0);
    assert_int_equal(hak_registry_spare_bytes(), 0);
    p[SIZE - HAK_MIB - 1] = 1;
    assert_int_equal(unit_usable(p), SIZE - HAK_MIB);
}

TEST(a_spare_that_the_kernel_does_not_open_serves_nobody)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_munmap, 1, ENOMEM, true);
    hak_free(hak_malloc(SIZE));
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, false);
    char *p = hak_malloc(SIZE);
    p[0] = 1;
    assert_int_equal(hak_registry_spare_bytes(), SIZE);
    fake_os_allow();
    hak_free(p);
}

TEST(a_block_grows_into_the_spares_behind_it)
{
    unit_start(NULL);
    char *blocks[N];
    take(blocks, SIZE);
    fake_os_refuse(HAK_OS_munmap, 1, ENOMEM, true);
    char *low = blocks[0];
    for (unsigned i = 1; i < N; i++)
        if (blocks[i] < low) {
            hak_free(low);
            low = blocks[i];
        }
    fake_os_allow();
    if (HAK_HARDENED || getenv("UNIT_RUN_BY"))
        skip(); /* a fence lies between them; an emulator maps them apart */
    assert_ptr_equal(hak_resize(low, 2 * SIZE + HAK_PAGE), low);
    assert_int_equal(fake_os_count(HAK_OS_mremap), 0);
    assert_int_equal(unit_usable(low), 2 * SIZE + HAK_PAGE);
    memset(low + SIZE, 1, SIZE + HAK_PAGE);
    assert_int_equal(low[0], 1);
    hak_free(low);
    assert_int_equal(hak_registry_bytes(&(size_t){0}), unit_stat("large", "direct_bytes"));
}
