/* SPDX-License-Identifier: MIT */
#include <sys/mman.h>

#include "core/plugin.h"
#include "unit.h"

extern const struct hak_release hak_release_batch;

#define N 40

static struct iovec ranges[N];

static void fill(void)
{
    unit_start("HAKMEM_RELEASE=batch");
    char *p;
    assert_int_equal(hak_os_map((void **)&p, 2 * N * HAK_PAGE, PROT_READ | PROT_WRITE, HAK_CAUSE_large_map), 0);
    for (unsigned i = 0; i < N; i++) {
        p[2 * i * HAK_PAGE] = 1;
        ranges[i] = (struct iovec){p + 2 * i * HAK_PAGE, HAK_PAGE};
    }
}

static void assert_returned(void)
{
    assert_int_equal(hak_release_batch.release(ranges, N, hak_release_batch.cause), N * HAK_PAGE);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(*(char *)ranges[i].iov_base, 0);
}

TEST(many_ranges_go_back_in_one_call)
{
    fill();
    assert_true(hak_init());
    assert_ptr_equal(hak_parts.release, &hak_release_batch);
    assert_false(hak_release_batch.at_once);
    assert_returned();
    assert_int_equal(hak_ledger[HAK_CAUSE_batch_release][HAK_OS_process_madvise].calls, 1);
    assert_int_equal(hak_ledger[HAK_CAUSE_batch_release][HAK_OS_madvise].calls, 0);
}

TEST(an_older_kernel_takes_them_one_by_one)
{
    fill();
    fake_os_vector(EBADF, SIZE_MAX);
    assert_returned();
    assert_int_equal(hak_ledger[HAK_CAUSE_batch_release][HAK_OS_madvise].calls, N);
}

TEST(locked_pages_stay)
{
    fill();
    fake_os_vector(EINVAL, SIZE_MAX);
    fake_os_refuse(HAK_OS_madvise, 1, EINVAL, true);
    assert_int_equal(hak_release_batch.release(ranges, N, HAK_CAUSE_batch_release), 0);
    assert_int_equal(*(char *)ranges[0].iov_base, 1);
}
