/* SPDX-License-Identifier: MIT
 * The slow paths; and the kernel refuses each system call in turn. */
#include "core/malloc/slow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/heap/decay.h"
#include "hakmem.h"
#include "sizes.h"
#include "unit.h"

TEST(free_keeps_errno)
{
    unit_start(NULL);
    void *span = hak_malloc(200000), *direct = hak_malloc(80 * HAK_MIB);
    struct unit_block *blocks = unit_blocks(2000, 3000); /* so many that some return to their slabs */
    fake_os_refuse_any(1, EINVAL, true);
    errno = 66;
    hak_free(NULL);
    unit_free_blocks(blocks);
    hak_free(span);
    hak_free(direct);
    assert_int_equal(errno, 66);
}

/* --- every call refused --------------------------------------------------------------------------------- */

/* Allocates all kinds of sizes; each NULL comes with ENOMEM. The caller checks and frees the blocks later. */
static unsigned workload(char **blocks)
{
    unsigned n = 0;
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            errno = 0;
            char *p = round % 2 ? hakmem_calloc(1, sizes[i]) : hakmem_malloc(sizes[i]);
            if (!p) {
                assert_int_equal(errno, ENOMEM);
                continue;
            }
            if (sizes[i])
                p[0] = (char)i;
            char *q = hakmem_realloc(p, sizes[i] + sizes[i] / 2 + 1);
            if (!q)
                assert_int_equal(errno, ENOMEM);
            blocks[n] = q ? q : p;
            if (sizes[i])
                assert_int_equal(blocks[n][0], (char)i);
            n++;
        }
    return n;
}

/* Runs in a process of its own for each number; "N" refuses the Nth call, "N+" that and all later ones. */
TEST(a_call_refused)
{
    if (!unit_argument)
        return;
    char *blocks[3 * COUNT(sizes)], *rest;
    unsigned nth = (unsigned)strtoul(unit_argument, &rest, 10);
    unit_start(NULL);
    fake_os_refuse_any(nth, ENOMEM, *rest == '+');
    unsigned n = workload(blocks);
    for (unsigned i = 0; i < n; i += 2)
        hakmem_free(blocks[i]);
    uint64_t calls = fake_os_total();
    fake_os_allow();
    for (unsigned i = 1; i < n; i += 2)
        hakmem_free(blocks[i]);
    assert_int_equal(workload(blocks), COUNT(blocks));
    for (unsigned i = 0; i < COUNT(blocks); i++)
        hakmem_free(blocks[i]);
    hak_trim(0);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
    assert_int_equal(c.live_large, 0);
    dprintf(unit_out, "%d", calls < nth);
}

/* In short runs, and under a sanitizer, where a process starts slowly, it is every third call. */
static void refuse_each(const char *format)
{
    char argument[16], out[8] = "0";
    unsigned nth, step = HAK_SANITIZED || getenv("TEST_SHORT") ? 3 : 1;
    for (nth = 1; out[0] == '0' && nth < 400; nth += step) {
        snprintf(argument, sizeof argument, format, nth);
        int status = unit_spawn("a_call_refused", argument, out, sizeof out);
        if (status)
            fail_msg("call %s refused: wait status 0x%x", argument, (unsigned)status);
    }
    assert_true(nth > 10 && out[0] == '1');
}

TEST(each_call_refused_once)
{
    refuse_each("%u");
}

TEST(each_call_and_all_later_ones_refused)
{
    refuse_each("%u+");
}

/* A slab loses its tag when the tag table grows. */
TEST(a_block_without_a_tag_comes_back_and_its_page_has_one_again)
{
    unit_start(NULL);
    struct hak_heap *t = unit_thread();
    char *p = hak_malloc(2000);
    hak_tag_clear(p);
    hak_free(p);
    assert_int_not_equal(hak_tag_load((uintptr_t)p >> HAK_PAGE_LG), 0);
    hak_bins_flush(t);
    struct hak_census c = unit_census();
    assert_int_equal(c.used, c.remote);
}

/* For the lowest pages, an empty entry of the tag table reads as a class. */
TEST(a_free_of_a_low_address_is_misuse)
{
    unit_start(NULL);
    assert_non_null(unit_thread());
    for (uintptr_t page = 1; page <= HAK_NCLASSES + 1; page += page < HAK_NCLASSES - 1 ? HAK_NCLASSES - 2 : 1)
        assert_dies(hak_free((void *)(page << HAK_PAGE_LG)), "invalid free");
}
