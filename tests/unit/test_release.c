/* SPDX-License-Identifier: MIT */
#include <sys/mman.h>

#include "core/plugin.h"
#include "unit.h"

extern const struct hak_release hak_release_direct;

#define SIZE ((size_t)64 * 1024)

static struct iovec ranges[4];

static void fill(void)
{
    unit_start(NULL);
    char *p;
    assert_int_equal(hak_os_map((void **)&p, 4 * SIZE, PROT_READ | PROT_WRITE, HAK_CAUSE_large_map), 0);
    for (unsigned i = 0; i < 4; i++) {
        p[i * SIZE] = 1;
        ranges[i] = (struct iovec){p + i * SIZE, SIZE};
    }
}

TEST(each_range_by_a_call_of_its_own)
{
    fill();
    fake_os_refuse(HAK_OS_madvise, 2, EINVAL, false);
    assert_int_equal(hak_release_direct.release(ranges, 4, HAK_CAUSE_direct_release), 3 * SIZE);
    assert_int_equal(hak_ledger[HAK_CAUSE_direct_release][HAK_OS_madvise].calls, 4);
    assert_int_equal(fake_os_count(HAK_OS_process_madvise), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(*(char *)ranges[i].iov_base, i == 1);
}

TEST(it_gives_back_at_once)
{
    assert_true(hak_release_direct.at_once);
    unit_start("HAKMEM_RELEASE=direct HAKMEM_PURGE_DELAY_MS=3600000");
    hak_free(hak_malloc(300000));
    assert_true(hak_ledger[HAK_CAUSE_direct_release][HAK_OS_madvise].calls > 0);
}
