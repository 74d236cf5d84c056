/* SPDX-License-Identifier: MIT
 * Pages that go back in one call: of the call itself test_os.c has more. */
#include <sys/mman.h>

#include "core/plugin.h"
#include "unit.h"

extern const struct hak_release hak_release_batch;

#define N 40

static struct iovec ranges[N];

static uint64_t calls(enum hak_os_call call)
{
    return hak_ledger[HAK_CAUSE_batch_release][call].calls;
}

static const struct {
    int refusal; /* of the vectored call */
    uint64_t vectors, singles;
} kernels[] = {{0, 1, 0}, {EBADF, 1, N}};

TEST_EACH(ranges_go_back_in_one_call_or_one_by_one, kernels)
{
    char *p;
    unit_init("HAKMEM_RELEASE=batch");
    assert_ptr_equal(hak_parts.release, &hak_release_batch);
    assert_false(hak_release_batch.at_once);
    assert_int_equal(hak_os_map((void **)&p, 2 * N * HAK_PAGE, PROT_READ | PROT_WRITE, HAK_CAUSE_large_map), 0);
    for (unsigned i = 0; i < N; i++) {
        p[2 * i * HAK_PAGE] = 1;
        ranges[i] = (struct iovec){p + 2 * i * HAK_PAGE, HAK_PAGE};
    }
    fake_os_vector(row->refusal, SIZE_MAX);
    assert_int_equal(hak_release_batch.release(ranges, N, hak_release_batch.cause), N * HAK_PAGE);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(p[2 * i * HAK_PAGE], 0);
    assert_int_equal(calls(HAK_OS_process_madvise), row->vectors);
    assert_int_equal(calls(HAK_OS_madvise), row->singles);
}
