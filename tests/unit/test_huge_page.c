/* SPDX-License-Identifier: MIT */
#include "core/os/huge_page.h"

#include <string.h>
#include <sys/mman.h>

#include "unit.h"

#define SIZE (8 * HAK_MIB)
#define SLOW_NS 5000000u

static char *range;

static void start(void)
{
    unit_start(NULL);
    range = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(range, MAP_FAILED);
}

TEST(fast_ones_are_asked_for)
{
    start();
    memset(range, 7, SIZE);
    for (unsigned i = 1; i <= 3; i++) {
        assert_true(hak_huge_page_advise(range, SIZE));
        assert_int_equal(fake_os_huge_bytes(), i * SIZE);
        assert_int_equal(fake_os_count(HAK_OS_madvise), i);
    }
    assert_int_equal(unit_stat("huge_pages", "timed"), 3);
    assert_int_equal(unit_stat("huge_pages", "slow"), 0);
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(range[i], 7);
}

TEST(after_three_slow_ones_none_is_asked_for_during_a_second)
{
    start();
    for (unsigned i = 0; i < 3; i++) { /* a thread that waited for a CPU */
        fake_os_clock(SLOW_NS);
        assert_true(hak_huge_page_advise(range, SIZE));
        assert_true(hak_huge_page_advise(range, SIZE));
        fake_os_clock(100);
        assert_true(hak_huge_page_advise(range, SIZE));
    }
    fake_os_clock(SLOW_NS);
    assert_true(hak_huge_page_advise(range, SIZE));
    assert_true(hak_huge_page_advise(range, SIZE));
    assert_false(hak_huge_page_advise(range, SIZE));
    assert_int_equal(fake_os_count(HAK_OS_madvise), 13); /* and taken back */
    assert_false(hak_huge_page_advise(range, SIZE));
    assert_int_equal(fake_os_count(HAK_OS_madvise), 13);
    fake_os_pass(1000);
    fake_os_clock(100);
    assert_true(hak_huge_page_advise(range, SIZE));
    assert_int_equal(unit_stat("huge_pages", "timed"), 13);
    assert_int_equal(unit_stat("huge_pages", "slow"), 9);
}

TEST(where_the_kernel_refuses_nothing_is_touched)
{
    start();
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    assert_false(hak_huge_page_advise(range, SIZE));
    assert_int_equal(unit_stat("huge_pages", "timed"), 0);
}

TEST(a_range_without_a_whole_one_is_not_timed)
{
    start();
    size_t to_next = hak_align_up((uintptr_t)range + 1, HAK_HUGE_PAGE) - (uintptr_t)range;
    fake_os_clock(SLOW_NS);
    assert_true(hak_huge_page_advise(range + to_next + 4096, HAK_HUGE_PAGE));
    assert_int_equal(unit_stat("huge_pages", "timed"), 0);
}
