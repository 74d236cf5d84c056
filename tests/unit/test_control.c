/* SPDX-License-Identifier: MIT
 * Settings of the running process: which can be read and changed by name, and the errors for the rest. */
#include "core/process/control.h"

#include <string.h>

#include "core/base/sealed.h"
#include "core/pages/guard.h"
#include "core/process/start.h"
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
    assert_int_equal(hak_purge_delay_ms(), 7); /* also for the page heap */
    assert_int_equal(hak_control_set("HAKMEM_PURGE_DELAY_MS", "0"), 0);
    assert_int_equal(hak_purge_delay_ms(), 0);
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
