/* SPDX-License-Identifier: MIT */
#include "core/parts/parts.h"

#include <string.h>

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

TEST(every_class_has_the_narrowest_frontend)
{
    unit_start(NULL);
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        assert_non_null(hak_parts.by_class[cls]);
        assert_string_equal(hak_parts.by_class[cls]->name, narrowest(hak_strides[cls]));
    }
    assert_non_null(hak_parts.spans->span_alloc);
}

TEST(capacities_are_sane)
{
    unit_start(NULL);
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        assert_in_range(hak_parts.capacity[cls], 2, 4096);
        assert_in_range(hak_parts.batch[cls], 1, hak_parts.capacity[cls]);
    }
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

/* Of the original's classes C5 and C7, one block a trip where the settings say so; of none where batches are off. */
static void check_batches(const char *settings, bool c5, bool c7, bool others)
{
    init_with(settings);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        uint32_t stride = hak_strides[cls];
        bool many = stride > 128 && stride <= 256 ? c5 : stride > 512 && stride <= 1024 ? c7 : others;
        assert_int_equal(hak_parts.batch[cls], many ? hak_parts.capacity[cls] : 1);
    }
}

TEST(all_classes_come_in_batches)
{
    check_batches("", true, true, true);
}

TEST(c5_may_come_one_by_one)
{
    check_batches("HAKMEM_TINY_P0_DIRECT_FC=0", false, true, true);
}

TEST(c7_may_come_one_by_one)
{
    check_batches("HAKMEM_TINY_P0_DIRECT_FC_C7=0", true, false, true);
}

TEST(all_may_come_one_by_one)
{
    check_batches("HAKMEM_TINY_P0_ENABLE=0", false, false, false);
}

TEST(the_pool_can_be_switched_off)
{
    unit_start("HAKMEM_POOL_TLS=0");
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        assert_string_not_equal(hak_parts.by_class[cls]->name, "pool");
    unit_free_blocks(unit_blocks(20000, 20));
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
#endif

TEST(a_frontend_that_names_no_capacity_gets_a_few_blocks)
{
    unit_start("HAKMEM_POOL_TLS=0");
    assert_true(hak_init());
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (!hak_parts.by_class[cls]->bin_capacity)
            assert_in_range(hak_parts.capacity[cls], 8, 256);
}

/* Acquires of which the time is known. */
static uint64_t timed_acquires(const char *settings)
{
    uint64_t all = 0;
    unit_start(settings);
    unit_free_blocks(unit_blocks(100, 100));
    for (unsigned stage = 0; stage <= HAK_STAGES; stage++)
        for (unsigned i = 0; i < HAK_LATENCIES; i++)
            all += HAK_LOAD_RELAXED(&hak_stage_latencies[stage].calls[i]);
    return all;
}

TEST(acquires_are_timed_where_it_is_asked_for)
{
    assert_int_equal(timed_acquires("HAKMEM_SHARED_POOL_STAGE_STATS=1"), 1);
}

TEST(acquires_are_not_timed_otherwise)
{
    assert_int_equal(timed_acquires(NULL), 0);
}
