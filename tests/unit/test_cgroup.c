/* SPDX-License-Identifier: MIT
 * On a tree of files that looks like cgroups of version 2. */
#include "core/os/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/pages/budget.h"
#include "unit.h"

static char above[64], own[96], setting[128];

static void put(const char *folder, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_tree(const char *high_above, const char *high, const char *max, const char *current)
{
    strcpy(above, "/tmp/hakmem_cgroup.XXXXXX");
    assert_non_null(mkdtemp(above));
    snprintf(own, sizeof own, "%s/own", above);
    assert_int_equal(mkdir(own, 0700), 0);
    put(above, "memory.high", high_above);
    put(above, "memory.current", "5\n");
    put(own, "memory.high", high);
    put(own, "memory.max", max);
    put(own, "memory.current", current);
    put(own, "memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=3\n");
    snprintf(setting, sizeof setting, "HAKMEM_CGROUP=%s", own);
}

static void remove_tree(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -r %s", above);
    assert_int_equal(system(command), 0);
}

static struct hak_cgroup read_it(bool found)
{
    struct hak_cgroup c;
    unit_start(setting);
    assert_true(hak_init());
    assert_int_equal(hak_cgroup_read(&c), found);
    return c;
}

TEST(the_least_of_its_limits)
{
    make_tree("max\n", "300000\n", "200000\n", "150000\n");
    struct hak_cgroup c = read_it(true);
    assert_int_equal(c.limit, 200000);
    assert_int_equal(c.current, 150000);
    assert_int_equal(c.stalled_us, 77);
    remove_tree();
}

TEST(the_limit_of_a_group_above)
{
    make_tree("1000\n", "max\n", "max\n", "150000\n");
    struct hak_cgroup c = read_it(true);
    assert_int_equal(c.limit, 1000);
    assert_int_equal(c.current, 5);
    remove_tree();
}

TEST(no_limit)
{
    make_tree("max\n", "max\n", "max\n", "150000\n");
    assert_true(read_it(true).limit == UINT64_MAX);
    remove_tree();
}

TEST(no_group)
{
    strcpy(setting, "HAKMEM_CGROUP=/nonexistent/group");
    assert_true(read_it(false).limit == UINT64_MAX);
}

TEST(switched_off)
{
    strcpy(setting, "HAKMEM_CGROUP=off");
    assert_true(read_it(false).limit == UINT64_MAX);
}

/* Spans, and then idle ones: they wait for an hour, unless the container is tight. */
static size_t held_when_idle(void)
{
    static void *blocks[64];
    strcat(setting, " HAKMEM_PURGE_DELAY_MS=3600000");
    unit_start(setting);
    assert_true(hak_init());
    if (hak_parts.release->at_once) { /* nothing waits */
        remove_tree();
        skip();
    }
    for (unsigned i = 0; i < 64; i++)
        memset(blocks[i] = hak_malloc(HAK_MIB), 1, HAK_MIB);
    for (unsigned i = 0; i < 64; i++)
        hak_free(blocks[i]);
    fake_os_pass(2000);
    for (unsigned i = 0; i < 1000; i++)
        hak_free(hak_malloc(100000));
    return hak_budget_held();
}

static void assert_tight(bool tight)
{
    size_t held = held_when_idle();
    assert_true(tight ? held < 16 * HAK_MIB : held >= 48 * HAK_MIB);
    assert_int_equal(unit_stat("container", "tight") > 0, tight);
}

TEST(near_its_limit_idle_memory_goes_back)
{
    make_tree("max\n", "100000000\n", "max\n", "87500001\n"); /* more than seven eighths */
    assert_tight(true);
    assert_int_equal(unit_stat("budget", "budget_bytes"), 100000000);
    remove_tree();
}

TEST(far_from_it_idle_memory_waits)
{
    make_tree("max\n", "100000000\n", "max\n", "87500000\n");
    assert_tight(false);
    remove_tree();
}

/* The kernel drops it before anything else. */
TEST(page_cache_that_is_not_in_use_does_not_count)
{
    make_tree("max\n", "100000000\n", "max\n", "100000000\n");
    put(own, "memory.stat",
        "anon 87500000\nfile 12500000\ninactive_anon 9\nactive_anon 9\ninactive_file 12500000\nactive_file 7\n");
    assert_tight(false);
    assert_int_equal(unit_stat("container", "current_bytes"), 87500000);
    remove_tree();
}

TEST(page_cache_in_use_counts)
{
    make_tree("max\n", "100000000\n", "max\n", "100000000\n");
    put(own, "memory.stat", "anon 87500000\nfile 12500000\ninactive_file 12499999\nactive_file 12500000\n");
    assert_tight(true);
    remove_tree();
}

TEST(more_page_cache_than_memory_is_no_memory)
{
    make_tree("max\n", "100000000\n", "max\n", "1000\n"); /* the two are read one after the other */
    put(own, "memory.stat", "anon 0\ninactive_file 2000\n");
    assert_int_equal(read_it(true).current, 0);
    remove_tree();
}

/* Its neighbours have filled it. */
TEST(a_group_above_is_near_a_larger_limit)
{
    make_tree("200000000\n", "100000000\n", "max\n", "70000000\n");
    put(above, "memory.current", "180000000\n");
    assert_tight(true);
    assert_int_equal(unit_stat("container", "limit_bytes"), 100000000);
    remove_tree();
}

TEST(page_cache_of_a_group_above_does_not_count)
{
    make_tree("200000000\n", "100000000\n", "max\n", "70000000\n");
    put(above, "memory.current", "180000000\n");
    put(above, "memory.stat", "anon 70000000\ninactive_file 100000000\n");
    assert_tight(false);
    remove_tree();
}

TEST(a_limit_of_ones_own_wins)
{
    make_tree("max\n", "100000000\n", "max\n", "70000000\n");
    strcat(setting, " HAKMEM_LIMIT_MB=500");
    held_when_idle();
    assert_int_equal(unit_stat("budget", "budget_bytes"), 500 * HAK_MIB);
    remove_tree();
}

TEST(without_a_limit_idle_memory_waits)
{
    make_tree("max\n", "max\n", "max\n", "150000000\n");
    assert_tight(false);
    assert_int_equal(unit_stat("container", "limit_bytes"), 0);
    assert_int_equal(unit_stat("container", "current_bytes"), 150000000);
    remove_tree();
}
