/* SPDX-License-Identifier: MIT
 * On a tree of files that looks like cgroups of version 2. */
#include "core/os/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "core/pages/budget.h"
#include "unit.h"

/* The content of the files of the group and of the one above. Without a text limits are "max", and there is no
 * memory.stat.
 */
struct tree {
    const char *high_above, *current_above, *stat_above;
    const char *high, *max, *current, *stat;
    const char *cpu_above, *cpu;
};

static char above[64], setting[256];

static void put(const char *folder, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    fclose(f);
}

static void make(const struct tree *tree)
{
    char own[96];
    strcpy(above, "/tmp/hakmem_cgroup.XXXXXX");
    assert_non_null(mkdtemp(above));
    snprintf(own, sizeof own, "%s/own", above);
    assert_int_equal(mkdir(own, 0700), 0);
    put(above, "memory.high", tree->high_above ? tree->high_above : "max");
    put(above, "memory.current", tree->current_above ? tree->current_above : "5");
    if (tree->stat_above)
        put(above, "memory.stat", tree->stat_above);
    put(above, "cpu.max", tree->cpu_above ? tree->cpu_above : "max 100000");
    if (tree->cpu)
        put(own, "cpu.max", tree->cpu);
    put(own, "memory.high", tree->high ? tree->high : "max");
    put(own, "memory.max", tree->max ? tree->max : "max");
    put(own, "memory.current", tree->current);
    if (tree->stat)
        put(own, "memory.stat", tree->stat);
    put(own, "memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=3");
    snprintf(setting, sizeof setting, "HAKMEM_CGROUP=%s ", own);
}

static void remove_tree(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -r %s", above);
    assert_int_equal(system(command), 0);
}

static const struct {
    struct tree tree;
    uint64_t limit, current, stalled_us;
} limits[] = {
    {{.high = "300000", .max = "200000", .current = "150000"}, 200000, 150000, 77},
    {{.high_above = "1000", .current = "150000"}, 1000, 5, 0},
    {{.current = "150000"}, UINT64_MAX, 150000, 77},
    /* More page cache than memory is possible, since the two are read one after the other. */
    {{.high = "9999", .current = "1000", .stat = "anon 0\ninactive_file 2000"}, 9999, 0, 77},
};

TEST_EACH(the_least_of_all_limits_and_what_is_used_of_it, limits)
{
    struct hak_cgroup c;
    make(&row->tree);
    unit_init(setting);
    assert_true(hak_cgroup_read(&c));
    assert_int_equal(c.limit, row->limit);
    assert_int_equal(c.current, row->current);
    assert_int_equal(c.stalled_us, row->stalled_us);
    remove_tree();
}

/* The machine has 64 CPUs. */
long __real_hak_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_hak_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_hak_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number != SYS_sched_getaffinity)
        return __real_hak_syscall(number, a, b, c, d, e, f);
    memset((void *)c, 0xff, 8);
    return 8;
}

static const struct {
    struct tree tree;
    unsigned cpus;
} quotas[] = {
    {{.current = "1"}, 64},
    {{.current = "1", .cpu = "10000 100000"}, 1},
    {{.current = "1", .cpu = "200000 100000"}, 2},
    {{.current = "1", .cpu = "25000 10000", .cpu_above = "200000 100000"}, 2},
    {{.current = "1", .cpu = "25000 10000"}, 3},
    {{.current = "1", .cpu = "9900000 100000"}, 64},
};

TEST_EACH(the_number_of_cpus_is_no_more_than_their_quota, quotas)
{
    make(&row->tree);
    unit_init(setting);
    assert_int_equal(hak_cpus(), row->cpus);
    remove_tree();
}

TEST(no_group)
{
    struct hak_cgroup c;
    unit_init("HAKMEM_CGROUP=off");
    assert_false(hak_cgroup_read(&c));
    assert_true(c.limit == UINT64_MAX);
}

TEST(a_folder_that_is_no_group_is_refused)
{
    unit_init("HAKMEM_CGROUP=/nonexistent/group HAKMEM_QUIET=1");
    assert_string_equal(hak_options.cgroup, "");
}

/* Spans, and then idle ones: they wait for an hour, unless the container is tight. */
static size_t held_when_idle(void)
{
    static void *blocks[64];
    for (unsigned i = 0; i < 64; i++)
        memset(blocks[i] = hak_malloc(HAK_MIB), 1, HAK_MIB);
    for (unsigned i = 0; i < 64; i++)
        hak_free(blocks[i]);
    fake_os_pass(2000);
    for (unsigned i = 0; i < 1000; i++)
        hak_free(hak_malloc(100000));
    return hak_budget_held();
}

#define IS "100000000" /* the limit, of which seven eighths may be in use */
#define ABOVE .high_above = "200000000", .current_above = "180000000"

static const struct {
    struct tree tree;
    const char *settings;
    bool tight;
    uint64_t budget, limit, current; /* as the statistics say; 0: whatever they say */
} uses[] = {
    {.tree = {.high = IS, .current = "87500001"}, .tight = true, .budget = 100000000},
    {.tree = {.high = IS, .current = "87500000"}},
    /* The kernel first drops page cache that is not in use. */
    {.tree = {.high = IS,
              .current = IS,
              .stat = "anon 87500000\nfile 12500000\ninactive_anon 9\nactive_anon 9\ninactive_file 12500000\n"
                      "active_file 7"},
     .current = 87500000},
    {.tree = {.high = IS, .current = IS, .stat = "anon 87500000\ninactive_file 12499999\nactive_file 12500000"},
     .tight = true},
    /* Its neighbours have filled the group above. */
    {.tree = {ABOVE, .high = IS, .current = "70000000"}, .tight = true, .limit = 100000000},
    {.tree = {ABOVE, .stat_above = "anon 70000000\ninactive_file 100000000", .high = IS, .current = "70000000"}},
    {.tree = {.high = IS, .current = "70000000"}, .settings = " HAKMEM_LIMIT_MB=500", .budget = 500 * HAK_MIB},
    {.tree = {.current = "150000000"}, .current = 150000000},
};

TEST_EACH(near_its_limit_idle_memory_goes_back, uses)
{
    make(&row->tree);
    strcat(setting, "HAKMEM_PURGE_DELAY_MS=3600000");
    strcat(setting, row->settings ? row->settings : "");
    unit_init(setting);
    if (!hak_parts.release->at_once) { /* else nothing waits */
        size_t held = held_when_idle();
        assert_true(row->tight ? held < 16 * HAK_MIB : held >= 48 * HAK_MIB);
        assert_int_equal(unit_stat("container", "tight") > 0, row->tight);
        if (row->budget)
            assert_int_equal(unit_stat("budget", "budget_bytes"), row->budget);
        if (row->limit)
            assert_int_equal(unit_stat("container", "limit_bytes"), row->limit);
        if (row->current)
            assert_int_equal(unit_stat("container", "current_bytes"), row->current);
    }
    remove_tree();
}
