/* SPDX-License-Identifier: MIT */
#include "core/process/deepbind.h"

#include <dlfcn.h>
#include <string.h>

#include "unit.h"

#ifdef RTLD_DEEPBIND
static int flags;

static void ask(void)
{
    flags = hak_deepbind_flags("plugin.so", RTLD_NOW | RTLD_DEEPBIND);
}

TEST(the_flag_is_left_out_counted_and_reported_in_a_line)
{
    char text[200];
    unit_init("HAKMEM_VERBOSE=1");
    assert_int_equal(hak_deepbind_flags("plugin.so", RTLD_LAZY), RTLD_LAZY);
    assert_int_equal(unit_stat("dlopen", "deepbind_left_out"), 0);
    unit_stderr_of(ask(), text, sizeof text);
    assert_int_equal(flags, RTLD_NOW);
    assert_int_equal(unit_stat("dlopen", "deepbind_left_out"), 1);
    assert_non_null(strstr(text, "RTLD_DEEPBIND is left out for plugin.so"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

TEST(the_flag_is_heeded_where_that_is_asked_for)
{
    unit_start("HAKMEM_DEEPBIND=1");
    ask();
    assert_int_equal(flags, RTLD_NOW | RTLD_DEEPBIND);
    assert_int_equal(unit_stat("dlopen", "deepbind_left_out"), 0);
}
#endif
