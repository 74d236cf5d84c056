/* SPDX-License-Identifier: MIT */
#include "core/os/os.h"

#include <string.h>
#include <sys/mman.h>

#include "unit.h"

#define SIZE ((size_t)1 << 20)
#define RW (PROT_READ | PROT_WRITE)

static struct hak_ledger_entry *entry(enum hak_cause cause, enum hak_os_call call)
{
    return &hak_ledger[cause][call];
}

static void *map(void)
{
    void *p;
    assert_int_equal(hak_os_map(&p, SIZE, RW, HAK_CAUSE_large_map), 0);
    return p;
}

TEST(calls_are_entered_under_their_cause)
{
    unit_start(NULL);
    void *p = map();
    assert_int_equal(hak_os_protect(p, SIZE, PROT_READ, HAK_CAUSE_seal), 0);
    assert_int_equal(hak_os_advise(p, SIZE, MADV_DONTNEED, HAK_CAUSE_purge), 0);
    assert_int_equal(hak_os_remap(&p, SIZE, 2 * SIZE, true, HAK_CAUSE_realloc_remap), 0);
    hak_os_name(p, 2 * SIZE, "unit");
    assert_int_equal(hak_os_unmap(p, 2 * SIZE, HAK_CAUSE_large_unmap), 0);
    assert_int_equal(entry(HAK_CAUSE_large_map, HAK_OS_mmap)->bytes, SIZE);
    assert_int_equal(entry(HAK_CAUSE_seal, HAK_OS_mprotect)->bytes, SIZE);
    assert_int_equal(entry(HAK_CAUSE_purge, HAK_OS_madvise)->calls, 1);
    assert_int_equal(entry(HAK_CAUSE_realloc_remap, HAK_OS_mremap)->bytes, 2 * SIZE);
    assert_int_equal(entry(HAK_CAUSE_name, HAK_OS_prctl)->calls, 1);
    assert_int_equal(entry(HAK_CAUSE_large_unmap, HAK_OS_munmap)->calls, 1);
    assert_int_equal(fake_os_total(), 6);
}

TEST(failures_are_counted_and_errno_is_kept)
{
    unit_start(NULL);
    void *p = map();
    for (unsigned call = 0; call <= HAK_OS_madvise; call++)
        fake_os_refuse((enum hak_os_call)call, 1, EAGAIN, true);
    errno = 99;
    void *q = p;
    assert_int_equal(hak_os_map(&q, SIZE, RW, HAK_CAUSE_trim), -EAGAIN);
    assert_int_equal(hak_os_map_at(p, SIZE, RW, HAK_CAUSE_trim), -EAGAIN);
    assert_int_equal(hak_os_unmap(p, SIZE, HAK_CAUSE_trim), -EAGAIN);
    assert_int_equal(hak_os_protect(p, SIZE, RW, HAK_CAUSE_trim), -EAGAIN);
    assert_int_equal(hak_os_remap(&q, SIZE, 4096, false, HAK_CAUSE_trim), -EAGAIN);
    assert_int_equal(hak_os_advise(p, SIZE, MADV_DONTNEED, HAK_CAUSE_trim), -EAGAIN);
    assert_ptr_equal(q, p);
    assert_int_equal(errno, 99);
    for (unsigned call = 0; call <= HAK_OS_madvise; call++) {
        assert_int_equal(entry(HAK_CAUSE_trim, (enum hak_os_call)call)->failed, call == HAK_OS_mmap ? 2 : 1);
        assert_int_equal(entry(HAK_CAUSE_trim, (enum hak_os_call)call)->bytes, 0);
    }
}

TEST(map_at_never_replaces)
{
    unit_start(NULL);
    char *p = map();
    *p = 1;
    assert_int_not_equal(hak_os_map_at(p, SIZE, RW, HAK_CAUSE_metadata), 0);
    assert_int_equal(*p, 1);
    assert_int_equal(hak_os_unmap(p, SIZE, HAK_CAUSE_metadata), 0);
    assert_int_equal(hak_os_map_at(p, SIZE, RW, HAK_CAUSE_metadata), 0);
    assert_int_equal(*p, 0);
}

static struct iovec ranges[3000];
static size_t page;

/* n dirty single pages with a hole after each. */
static void fill(size_t n)
{
    void *p;
    page = hak_os_page_size();
    assert_int_equal(hak_os_map(&p, n * 2 * page, RW, HAK_CAUSE_large_map), 0);
    for (size_t i = 0; i < n; i++) {
        ranges[i] = (struct iovec){(char *)p + i * 2 * page, page};
        memset(ranges[i].iov_base, 1, 1);
    }
}

static void assert_returned(size_t n)
{
    assert_int_equal(hak_os_advise_vector(ranges, n, MADV_DONTNEED, HAK_CAUSE_trim), n * page);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(*(char *)ranges[i].iov_base, 0);
}

static const struct {
    size_t ranges, vectors, singles;
} sets[] = {{3000, 3, 0}, {16, 1, 0}, {15, 0, 15}, {0, 0, 0}};

TEST_EACH(one_vectored_call_for_1024_ranges_and_none_for_few, sets)
{
    unit_start(NULL);
    fill(hak_max(row->ranges, 1));
    assert_returned(row->ranges);
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_process_madvise)->calls, row->vectors);
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_process_madvise)->bytes, row->vectors ? row->ranges * page : 0);
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_madvise)->calls, row->singles);
}

/* Without the call, and without the descriptor of the process itself. */
static const int errors[] = {ENOSYS, EBADF};

TEST_EACH(an_older_kernel_is_asked_once, errors)
{
    unit_start(NULL);
    fake_os_vector(*row, SIZE_MAX);
    for (unsigned i = 1; i <= 2; i++) {
        fill(20);
        assert_returned(20);
        assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_madvise)->calls, i * 20);
    }
    assert_int_equal(fake_os_count(HAK_OS_process_madvise), 1);
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_process_madvise)->failed, 1);
}

/* The kernel answers EINVAL to both: advice that vectors do not take, and a locked range. */
TEST(a_locked_range_is_no_reason_to_give_the_call_up)
{
    unit_start(NULL);
    for (unsigned place = 0; place < 20; place += 6) {
        fill(20);
        fake_os_lock_page(ranges[place].iov_base);
        assert_int_equal(hak_os_advise_vector(ranges, 20, MADV_DONTNEED, HAK_CAUSE_trim), 19 * page);
        for (size_t i = 0; i < 20; i++)
            assert_int_equal(*(char *)ranges[i].iov_base, i == place);
        fake_os_unlock_pages();
        uint64_t vectors = fake_os_count(HAK_OS_process_madvise);
        assert_returned(20);
        assert_int_equal(fake_os_count(HAK_OS_process_madvise), vectors + 1);
    }
}

TEST(partial_completion_is_finished_one_by_one)
{
    unit_start(NULL);
    fake_os_vector(0, 3);
    fill(20);
    assert_returned(20);
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_process_madvise)->calls, 1);
    fake_os_vector(0, SIZE_MAX);
    fill(20);
    assert_returned(20); /* one partial completion is no reason to give the call up */
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_process_madvise)->calls, 2);
}

TEST(refused_ranges_are_not_counted_as_returned)
{
    unit_start(NULL);
    fake_os_vector(EAGAIN, SIZE_MAX);
    fill(10);
    fake_os_refuse(HAK_OS_madvise, 4, EINVAL, false);
    assert_int_equal(hak_os_advise_vector(ranges, 10, MADV_DONTNEED, HAK_CAUSE_trim), 9 * page);
    assert_int_equal(*(char *)ranges[3].iov_base, 1);
    assert_int_equal(entry(HAK_CAUSE_trim, HAK_OS_madvise)->failed, 1);
}

/* Linux before 5.17, and those without CONFIG_ANON_VMA_NAME. */
TEST(kernel_without_names_for_mappings)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_prctl, 1, EINVAL, true);
    errno = 55;
    struct unit_block *blocks = unit_blocks(4000, 10000); /* enough for a name */
    assert_int_equal(errno, 55);
    assert_true(fake_os_count(HAK_OS_prctl) > 0);
    assert_int_equal(hak_ledger[HAK_CAUSE_name][HAK_OS_prctl].failed, fake_os_count(HAK_OS_prctl));
    unit_free_blocks(blocks);
}

TEST(each_resident_page_counts)
{
    unit_needs_mincore();
    unit_start(NULL);
    page = hak_os_page_size();
    char *p = map();
    hak_os_advise(p, SIZE, MADV_NOHUGEPAGE, HAK_CAUSE_huge_page);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(hak_os_resident(p, 4 * page, HAK_CAUSE_huge_page), i * page);
        p[i * page] = 1;
    }
    assert_int_equal(hak_os_resident(p, page, HAK_CAUSE_huge_page), page);
    hak_os_unmap(p, SIZE, HAK_CAUSE_large_unmap);
}
