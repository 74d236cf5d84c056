/* SPDX-License-Identifier: MIT */
#include "core/parts/parts.h"

#include <string.h>
#include <unistd.h>

#include "core/malloc/malloc.h"
#include "hakmem.h"
#include "unit.h"

static const char *narrowest(uint32_t stride)
{
    const struct hak_frontend *best = NULL;
    for (unsigned i = 0; hak_frontends[i]; i++) {
        const struct hak_frontend *f = hak_frontends[i];
        if (stride >= f->min_stride && stride <= f->max_stride &&
            (!best || f->max_stride - f->min_stride < best->max_stride - best->min_stride))
            best = f;
    }
    return best ? best->name : "none";
}

TEST(every_bin_has_the_narrowest_frontend)
{
    unit_start(NULL);
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        assert_non_null(hak_parts.by_class[cls]);
        assert_string_equal(hak_parts.by_class[cls]->name, narrowest(hak_strides[cls]));
    }
    assert_string_equal(hak_parts.spans->name, "large");
}

TEST(limits_are_sane)
{
    unit_start(NULL);
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        assert_in_range(hak_parts.capacity[cls], 1, 4096);
        assert_in_range(hak_parts.batch[cls], 1, hak_parts.capacity[cls]);
        assert_int_equal(hak_parts.capacity[cls], hak_parts.capacity[cls]);
    }
}

TEST(the_pool_can_be_switched_off)
{
    unit_start("HAKMEM_POOL_TLS=0");
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        assert_string_not_equal(hak_parts.by_class[cls]->name, "pool");
    unit_free_blocks(unit_blocks(20000, 20));
}

static char text[1000];

static void init(void)
{
    assert_true(hak_init());
}

static void init_with(const char *settings)
{
    unit_start(settings);
    unit_stderr_of(init, text, sizeof text);
}

TEST(each_built_backend_can_be_chosen)
{
    unit_start(NULL);
    if (unit_argument) {
        init();
        assert_string_equal(hak_parts.backend->name, unit_argument);
        return;
    }
    for (unsigned i = 0; hak_backends[i]; i++) {
        char setting[64] = "HAKMEM_BACKEND=";
        unit_start(strcat(setting, hak_backends[i]->name));
        assert_int_equal(unit_spawn("each_built_backend_can_be_chosen", hak_backends[i]->name, NULL, 0), 0);
    }
}

TEST(an_unknown_backend_gives_a_line_and_the_default)
{
    init_with("HAKMEM_BACKEND=nosuch");
    assert_non_null(strstr(text, "HAKMEM_BACKEND=nosuch: no such part in this build, which has"));
    for (unsigned i = 0; hak_backends[i]; i++)
        assert_non_null(strstr(text, hak_backends[i]->name));
    assert_string_equal(hak_parts.backend->name, HAK_DEFAULT_BACKEND);
    unit_free_blocks(unit_blocks(100, 100));
}

TEST(an_unknown_release_gives_a_line_and_the_default)
{
    init_with("HAKMEM_RELEASE=nosuch");
    assert_non_null(strstr(text, "HAKMEM_RELEASE=nosuch: no such part"));
    assert_string_equal(hak_parts.release->name, hak_releases[0]->name);
}

TEST(batches_can_be_disabled)
{
    init_with("HAKMEM_DISABLE_BATCH=1");
    assert_string_equal(hak_parts.release->name, "direct");
    assert_string_equal(text, "");
}

#if BOTH_BACKENDS
TEST(the_inherited_name_of_the_backend_setting)
{
    init_with("HAKMEM_BACKEND= HAKMEM_TINY_USE_SUPERSLAB=0");
    assert_string_equal(hak_parts.backend->name, "legacy");
}

TEST(the_name_wins_over_the_inherited_one)
{
    init_with("HAKMEM_BACKEND=shared_pool HAKMEM_TINY_USE_SUPERSLAB=0");
    assert_string_equal(hak_parts.backend->name, "shared_pool");
}
#define INHERITED_NAMES T(the_inherited_name_of_the_backend_setting), T(the_name_wins_over_the_inherited_one),
#else
#define INHERITED_NAMES
#endif

TEST(verbose_is_one_line)
{
    init_with("HAKMEM_VERBOSE=1");
    assert_memory_equal(text, "hakmem: version ", 16);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

TEST(nothing_is_said_unasked)
{
    init_with(NULL);
    assert_string_equal(text, "");
}

/* Whether the kernel may write to the tables, without a signal. */
static ssize_t read_into_tables(const int ends[2])
{
    assert_int_equal(write(ends[1], "x", 1), 1);
    return read(ends[0], &hak_sealed, 1);
}

TEST(the_tables_are_read_only_then)
{
    int ends[2];
    init_with(NULL);
    if (!hak_is_sealed())
        skip(); /* a system page larger than the alignment */
    assert_int_equal(hak_ledger[HAK_CAUSE_seal][HAK_OS_mprotect].calls, 1);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(read_into_tables(ends), -1);
    assert_int_equal(errno, EFAULT);
}

TEST(a_refused_seal_does_no_harm)
{
    unit_start(NULL);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, false);
    init();
    unit_free_blocks(unit_blocks(100, 1000));
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
        assert_int_equal(pthread_create(&threads[i], NULL, init_in_thread, NULL), 0);
    for (unsigned i = 0; i < 4; i++) {
        void *p;
        pthread_join(threads[i], &p);
        assert_non_null(p);
        hak_free(p);
    }
    /* where a sanitizer has its own mappings, the first places are refused or given back */
    const struct hak_ledger_entry *calls = hak_ledger[HAK_CAUSE_metadata];
    assert_int_equal(calls[HAK_OS_mmap].calls - calls[HAK_OS_mmap].failed - calls[HAK_OS_munmap].calls, 1);
}

UNIT_MAIN(T(every_bin_has_the_narrowest_frontend), T(limits_are_sane), T(the_pool_can_be_switched_off),
          T(each_built_backend_can_be_chosen), T(an_unknown_backend_gives_a_line_and_the_default),
          T(an_unknown_release_gives_a_line_and_the_default), T(batches_can_be_disabled),
          INHERITED_NAMES T(verbose_is_one_line), T(nothing_is_said_unasked), T(the_tables_are_read_only_then),
          T(a_refused_seal_does_no_harm), T(a_start_without_memory_is_tried_again), T(threads_start_it_once))
