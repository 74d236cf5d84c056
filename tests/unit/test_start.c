/* SPDX-License-Identifier: MIT */
#include "core/process/start.h"

#include <string.h>
#include <unistd.h>

#include "hakmem.h"
#include "unit.h"

static char text[1000];

TEST(verbose_is_one_line)
{
    unit_init_text("HAKMEM_VERBOSE=1", text, sizeof text);
    assert_memory_equal(text, "hakmem: version ", 16);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

/* Whether the kernel may write to the tables, without a signal. */
static ssize_t read_into_tables(const int ends[2])
{
    assert_int_equal(write(ends[1], "x", 1), 1);
    return read(ends[0], &hak_sealed, 1);
}

TEST(the_tables_are_read_only_after_a_silent_start)
{
    int ends[2];
    unit_init_text(NULL, text, sizeof text);
    assert_string_equal(text, "");
    if (!hak_is_sealed())
        skip(); /* a system page larger than the alignment */
    assert_int_equal(hak_ledger[HAK_CAUSE_seal][HAK_OS_mprotect].calls, 1);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(read_into_tables(ends), -1);
    assert_int_equal(errno, EFAULT);
}

TEST(a_start_without_memory_is_tried_again)
{
    unit_start(NULL);
    fake_os_refuse_any(1, ENOMEM, true);
    assert_false(hak_init());
    errno = 0;
    assert_null(hak_malloc(10));
    assert_int_equal(errno, ENOMEM);
    assert_null(hak_malloc(100000));
    assert_int_equal(hakmem_stats(2, true), -ENOMEM);
    assert_int_equal(hak_trim(0), 0);
    hak_free(NULL);
    fake_os_allow();
    unit_free_blocks(unit_blocks(10, 1000));
    assert_true(hak_init());
}

static void *init_in_thread(void *context)
{
    (void)context;
    assert_true(hak_init());
    return hak_malloc(33);
}

TEST(threads_start_it_once)
{
    unit_start(NULL);
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        threads[i] = unit_begin(init_in_thread, NULL);
    for (unsigned i = 0; i < 4; i++) {
        void *p;
        pthread_join(threads[i], &p);
        assert_non_null(p);
        hak_free(p);
    }
    /* if a sanitizer has mappings there, the kernel refuses the first places, or the library returns them */
    const struct hak_ledger_entry *calls = hak_ledger[HAK_CAUSE_metadata];
    assert_int_equal(calls[HAK_OS_mmap].calls - calls[HAK_OS_mmap].failed - calls[HAK_OS_munmap].calls, 1);
}
