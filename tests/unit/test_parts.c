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
    unit_init(NULL);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        assert_non_null(hak_parts.by_class[cls]);
        assert_string_equal(hak_parts.by_class[cls]->name, narrowest(hak_strides[cls]));
    }
    assert_non_null(hak_parts.spans->span_alloc);
}

static char text[1000];

static void init_with(const char *settings)
{
    unit_init_text(settings, text, sizeof text);
}

static const struct {
    const char *settings;
    bool c5, c7, others;
} batches[] = {
    {"", true, true, true},
    {"HAKMEM_TINY_P0_DIRECT_FC=0", false, true, true},
    {"HAKMEM_TINY_P0_DIRECT_FC_C7=0", true, false, true},
    {"HAKMEM_TINY_P0_ENABLE=0", false, false, false},
};

/* C5 and C7 are names of the original's classes. */
TEST_EACH(settings_choose_the_classes_that_come_in_batches, batches)
{
    unit_init(row->settings);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        uint32_t stride = hak_strides[cls];
        bool many = stride > 128 && stride <= 256 ? row->c5 : stride > 512 && stride <= 1024 ? row->c7 : row->others;
        assert_int_equal(hak_parts.batch[cls], many ? hak_parts.capacity[cls] : 1);
    }
}

TEST(the_pool_can_be_switched_off)
{
    unit_init("HAKMEM_POOL_TLS=0");
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        assert_string_not_equal(hak_parts.by_class[cls]->name, "pool");
        if (!hak_parts.by_class[cls]->bin_capacity) /* the frontend names no capacity: a few blocks */
            assert_in_range(hak_parts.capacity[cls], 8, 256);
    }
    unit_free_blocks(unit_blocks(20000, 20));
}

TEST(each_built_backend_can_be_chosen)
{
    unit_start(NULL);
    if (unit_argument) {
        assert_true(hak_init());
        assert_string_equal(hak_parts.backend->name, unit_argument);
        return;
    }
    for (unsigned i = 0; hak_backends[i]; i++) {
        char setting[64] = "HAKMEM_BACKEND=";
        unit_start(strcat(setting, hak_backends[i]->name));
        assert_int_equal(unit_spawn("each_built_backend_can_be_chosen", hak_backends[i]->name, NULL, 0), 0);
    }
}

TEST(an_unknown_part_gives_a_line_and_the_default)
{
    init_with("HAKMEM_BACKEND=nosuch HAKMEM_RELEASE=nosuch");
    assert_non_null(strstr(text, "HAKMEM_RELEASE=nosuch: no such part"));
    assert_string_equal(hak_parts.release->name, hak_releases[0]->name);
    assert_non_null(strstr(text, "HAKMEM_BACKEND=nosuch: no such part in this build, which has"));
    for (unsigned i = 0; hak_backends[i]; i++)
        assert_non_null(strstr(text, hak_backends[i]->name));
    assert_string_equal(hak_parts.backend->name, HAK_DEFAULT_BACKEND);
    unit_free_blocks(unit_blocks(100, 100));
}

TEST(batches_can_be_disabled)
{
    init_with("HAKMEM_DISABLE_BATCH=1");
    assert_string_equal(hak_parts.release->name, "direct");
    assert_string_equal(text, "");
}

#if BOTH_BACKENDS
static const char *const names[][2] = {
    {"HAKMEM_BACKEND= HAKMEM_TINY_USE_SUPERSLAB=0", "legacy"},
    {"HAKMEM_BACKEND=shared_pool HAKMEM_TINY_USE_SUPERSLAB=0", "shared_pool"},
};

TEST_EACH(the_backend_setting_wins_over_its_inherited_name, names)
{
    unit_init((*row)[0]);
    assert_string_equal(hak_parts.backend->name, (*row)[1]);
}
#endif

static const char *const timing[] = {NULL, "HAKMEM_SHARED_POOL_STAGE_STATS=1"};

TEST_EACH(acquires_are_timed_where_the_setting_asks_for_it, timing)
{
    uint64_t timed = 0;
    unit_start(*row);
    unit_free_blocks(unit_blocks(100, 100));
    for (unsigned stage = 0; stage <= HAK_STAGES; stage++)
        for (unsigned i = 0; i < HAK_LATENCIES; i++)
            timed += HAK_LOAD_RELAXED(&hak_stage_latencies[stage].calls[i]);
    assert_int_equal(timed, row - timing);
}
