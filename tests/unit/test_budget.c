/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "core/heap/decay.h"
#include "core/pages/budget.h"
#include "core/plugin.h"
#include "unit.h"

static uint64_t limit(const char *key)
{
    return unit_stat("budget", key);
}

static void *large_block(size_t size)
{
    void *p = hak_malloc(size);
    assert_non_null(p);
    return memset(p, 1, size);
}

TEST(what_is_held_is_what_could_be_resident)
{
    unit_start("HAKMEM_PURGE_DELAY_MS=3600000");
    hak_free(hak_malloc(100));
    size_t start = hak_budget_held();
    void *span = large_block(10 * HAK_MIB), *direct = hak_malloc(100 * HAK_MIB);
    assert_int_equal(hak_budget_held(), start + 110 * HAK_MIB);
    direct = hak_resize(direct, 120 * HAK_MIB);
    assert_int_equal(hak_budget_held(), start + 130 * HAK_MIB);
    hak_free(direct);
    struct unit_block *small = unit_blocks(1000, 20000), *pool = unit_blocks(20000, 1000);
    size_t blocks = 20000 * 1000 + 1000 * 20000, held = hak_budget_held() - start - 10 * HAK_MIB;
    assert_true(held >= blocks && held <= blocks + blocks / 8);
    unit_free_blocks(small);
    unit_free_blocks(pool);
    hak_free(span);
    hak_trim(0);
    hak_trim(0);
    assert_true(hak_budget_held() <= start + 2 * HAK_MIB); /* the slabs that bins keep */
    assert_int_equal(limit("held_bytes"), hak_budget_held());
    assert_true(limit("peak_bytes") >= start + 130 * HAK_MIB);
    assert_int_equal(limit("purges"), 0);
}

TEST(what_is_idle_goes_back_before_the_limit_is_passed)
{
    unit_start("HAKMEM_LIMIT_MB=32 HAKMEM_PURGE_DELAY_MS=3600000");
    for (unsigned i = 0; i < 4; i++) {                 /* one kind makes room for the other */
        hak_free(large_block((20 + 3 * i) * HAK_MIB)); /* longer than what is free */
        assert_true(hak_budget_held() <= 32 * HAK_MIB);
        unit_free_blocks(unit_blocks(1000, 20 * 1000));
        hak_bins_flush(unit_thread());
        assert_true(hak_budget_held() <= 32 * HAK_MIB);
    }
    if (!hak_parts.release->at_once)
        assert_true(limit("purges") > 0 && limit("purged_bytes") > 0);
    assert_int_equal(limit("exceeded"), 0);
}

/* Addresses use nothing of the limit; a tick, or the request that would pass it, finds what was touched since. */
TEST(a_block_that_nobody_touches_makes_no_request_purge)
{
    unit_start("HAKMEM_LIMIT_MB=64 HAKMEM_PURGE_DELAY_MS=3600000");
    for (unsigned ticks = 0; ticks < 2; ticks++) {
        char *sparse[] = {hak_malloc(500 * HAK_MIB), hak_malloc(20 * HAK_MIB), hak_malloc(100 * HAK_MIB)};
        uint64_t before = limit("purges");
        for (unsigned i = 0; i < 4; i++) {
            unit_free_blocks(unit_blocks(1000, 10000));
            hak_bins_flush(unit_thread());
        }
        assert_int_equal(limit("purges"), before);
        memset(sparse[2], 1, 100 * HAK_MIB);
        fake_os_pass(ticks * 1000);
        unit_free_blocks(unit_blocks(1000, ticks ? 20000 : 80000));
        assert_true(limit("purges") > before);
        for (unsigned i = 0; i < COUNT(sparse); i++)
            hak_free(sparse[i]);
        hak_trim(0);
    }
}

TEST(the_limit_refuses_nothing)
{
    unit_start("HAKMEM_LIMIT_MB=8");
    char *p = large_block(20 * HAK_MIB), *direct = hak_malloc(80 * HAK_MIB);
    assert_non_null(direct);
    unit_free_blocks(unit_blocks(1000, 20000));
    assert_true(limit("exceeded") >= 2);
    hak_free(p);
    hak_free(direct);
}

static void pass_the_limit_twice(void)
{
    hak_free(large_block(20 * HAK_MIB));
    hak_free(large_block(20 * HAK_MIB));
}

static const struct {
    const char *settings;
    bool tells;
} rows[] = {{"HAKMEM_LIMIT_MB=8", false}, {"HAKMEM_LIMIT_MB=8 HAKMEM_ACE_TRACE=1", true}};

TEST_EACH(one_line_tells_when_asked, rows)
{
    char text[4096];
    unit_start(row->settings);
    unit_stderr_of(pass_the_limit_twice(), text, sizeof text);
    const char *first = strstr(text, "HAKMEM_LIMIT_MB=8");
    assert_int_equal(first != NULL, row->tells);
    assert_true(!first || !strstr(first + 1, "HAKMEM_LIMIT_MB=8"));
}
