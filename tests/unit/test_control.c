/* SPDX-License-Identifier: MIT
 * Settings of the running process: which can be read and changed by name, and the errors for the rest. */
#include "core/process/control.h"

#include <stdio.h>
#include <string.h>

#include "core/base/sealed.h"
#include "core/base/stats.h"
#include "core/pages/guard.h"
#include "core/parts/parts.h"
#include "core/process/start.h"
#include "core/process/stats_sink.h"
#include "unit.h"

static void assert_value(const char *name, const char *wanted)
{
    char value[HAK_TEXT_MAX];
    assert_int_equal(hak_control_get(name, value, sizeof value), 0);
    assert_string_equal(value, wanted);
}

TEST(each_kind_of_value_is_read)
{
    unit_init("HAKMEM_MADV=free HAKMEM_CGROUP=off");
    assert_value("HAKMEM_PURGE_DELAY_MS", "100");
    assert_value("HAKMEM_QUIET", "0");
    assert_value("HAKMEM_MADV", "free");
    assert_value("HAKMEM_CGROUP", "off");
    assert_value("HAKMEM_STATS_FILE", "");
    char value[4];
    assert_int_equal(hak_control_get("HAKMEM_PURGE_DELAY_MS", value, 4), 0);
    assert_int_equal(hak_control_get("HAKMEM_PURGE_DELAY_MS", value, 3), -ERANGE);
    assert_int_equal(hak_control_get("HAKMEM_PURGE_DELAY", value, sizeof value), -ENOENT);
}

TEST(what_can_change_changes_and_the_rest_is_refused)
{
    unit_init("");
    assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", "7"), 0);
    assert_value("HAKMEM_PURGE_DELAY_MS", "7");
    assert_int_equal(hak_purge_delay_ms(), hak_parts.release->at_once ? 0 : 7); /* also for the page heap */
    assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", "0"), 0);
    assert_int_equal(hak_purge_delay_ms(), 0);
    assert_int_equal(hak_stats_sink_stderr(), -1);
    assert_int_equal(hak_control_set("HAKMEM_SHARED_POOL_STAGE_STATS", "1"), 0);
    assert_true(hak_stats_sink_stderr() >= 0); /* printed at exit */
    assert_int_equal(hak_control_set("HAKMEM_NONSENSE", "7"), -ENOENT);
    assert_int_equal(hak_control_set("HAKMEM_BACKEND", "legacy"), -EPERM);
    assert_int_equal(hak_control_set("HAKMEM_MADV", "free"), -EPERM);
    assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", ""), -EINVAL);
    assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", "7 "), -EINVAL);
    assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", "3600001"), -EINVAL);
    assert_int_equal(hak_control_set("HAKMEM_PROFILE", "1000"), -ENOSYS);
    assert_value("HAKMEM_PURGE_DELAY_MS", "0");
}

/* The kernel refuses to open the tables, or to close them, or both: each change is made, or reports its error. */
TEST(a_refused_change_changes_nothing_also_when_repeated)
{
    static const char *const values[] = {"7", "8", "9"};
    unit_init("");
    for (unsigned refused = 0; refused < 4; refused++) {
        fake_os_refuse(HAK_OS_mprotect, 1 + refused / 2, EPERM, refused % 2);
        for (unsigned i = 0; i < COUNT(values); i++) {
            char before[HAK_TEXT_MAX];
            assert_int_equal(hak_control_get("HAKMEM_PURGE_DELAY_MS", before, sizeof before), 0);
            int error = hak_control_set("HAKMEM_PURGE_DELAY_MS", values[i]);
            assert_true(error == 0 || error == -EPERM);
            assert_value("HAKMEM_PURGE_DELAY_MS", error ? before : values[i]);
        }
        fake_os_allow();
        assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", "100"), 0);
        assert_true(hak_is_sealed());
    }
}

TEST(guarded_blocks_begin_and_end_late)
{
    unit_init("");
    assert_null(hak_guard_sample(16, NULL));
    assert_int_equal(hak_control_set("HAKMEM_GUARD_RATE", "1"), 0);
    char *p = hak_guard_sample(16, NULL);
    assert_non_null(p);
    assert_int_equal(hak_control_set("HAKMEM_GUARD_RATE", "0"), 0);
    assert_int_equal(hak_usable(p, "test"), 16); /* free still knows the block */
    hak_free(p);                                 /* and accepts it */
}

/* --- a setting that is changed acts like one that the process starts with -------------------------------- */

static const uint8_t changeable[] = {
#define NUMBER(field) HAK_OPTION_##field,
    HAK_OPTIONS_CHANGEABLE(NUMBER)
#undef NUMBER
};

/* All numbers but durations, what lies in memory, and what a setting has made since the start. */
static void print_number(struct hak_stats_writer *w, const char *path, uint64_t value)
{
    (void)w;
    if (!strstr(path, "ns") && !strstr(path, "latency") && !strstr(path, "resident") && !strstr(path, "os_calls.guard"))
        dprintf(unit_out, "%s %llu\n", path, (unsigned long long)value);
}

/* Memory of all kinds comes, goes and ages. */
static void work_for_counters(void)
{
    static char *p[1000];
    uint64_t random = 3;
    for (unsigned round = 0; round < 8; round++) {
        for (size_t i = 0; i < COUNT(p); i++)
            if (!p[i]) {
                uint64_t r = unit_random(&random);
                p[i] = hak_malloc(r % 50 ? 1 + r / 64 % 3000 : 20000 + r / 64 % 300000);
                if (p[i])
                    p[i][0] = 1;
            }
        for (size_t i = 0; i < COUNT(p); i++)
            if (round % 4 == 3 || unit_random(&random) % 3) {
                hak_free(p[i]);
                p[i] = NULL;
            }
        fake_os_pass(round % 4 == 3 ? 1500 : 40);
        while (unit_tick())
            ;
        hak_purge_tick();
    }
}

static void counters_of(const char *name, const char *before, const char *now, char *out, size_t size)
{
    char argument[128];
    snprintf(argument, sizeof argument, "%s %s %s", name, before, now);
    assert_int_equal(unit_spawn("a_changed_setting_acts_like_one_from_the_start", argument, out, size), 0);
}

static void compare_counters(const char *name, const char *before, const char *now)
{
    static char changed[1 << 17], started[1 << 17];
    counters_of(name, before, now, changed, sizeof changed);
    counters_of(name, now, now, started, sizeof started);
    for (char *a = changed, *b = started; *a || *b; a += strcspn(a, "\n") + 1, b += strcspn(b, "\n") + 1) {
        size_t n = strcspn(a, "\n");
        if (strncmp(a, b, n + 1))
            fail_msg("%s=%s, then %s: %.*s, not %.*s", name, before, now, (int)n, a, (int)strcspn(b, "\n"), b);
    }
}

TEST(a_changed_setting_acts_like_one_from_the_start)
{
    char name[64], before[16], now[16], setting[128];
    if (unit_argument) {
        assert_int_equal(sscanf(unit_argument, "%63s %15s %15s", name, before, now), 3);
        /* so that the resident bytes of this process decide nothing */
        snprintf(setting, sizeof setting, "HAKMEM_SANDBOX=1 %s=%s", name, before);
        assert_non_null(freopen("/dev/null", "w", stderr));
        unit_init(setting);
        assert_int_equal(hak_control_set(name, now), 0);
        work_for_counters();
        struct hak_stats_writer w = {.form = HAK_FORM_PATHS, .take = print_number};
        hak_stats_collect(&w);
        return;
    }
    for (unsigned i = 0; i < COUNT(changeable); i++) {
        const struct hak_option_info *info = &hak_option_table[changeable[i]];
        if (changeable[i] == HAK_OPTION_profile || changeable[i] == HAK_OPTION_background)
            continue; /* need a library; a thread */
        const uint32_t values[] = {info->max, info->min, info->min + 1};
        for (unsigned k = 1; k < COUNT(values) - (info->max == info->min + 1); k++) {
            snprintf(before, sizeof before, "%u", values[k - 1]);
            snprintf(now, sizeof now, "%u", values[k]);
            compare_counters(hak_option_text(info, HAK_TEXT_NAME), before, now);
            compare_counters(hak_option_text(info, HAK_TEXT_NAME), now, before);
        }
    }
}
