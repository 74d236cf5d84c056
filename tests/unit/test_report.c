/* SPDX-License-Identifier: MIT
 * The statistics agree with the fake OS layer, and with themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/heap/decay.h"
#include "core/heap/heaps.h"
#include "core/malloc/malloc.h"
#include "unit.h"

static void work(void)
{
    for (size_t size = 16; size < 3 * HAK_MIB; size = size * 5 / 4)
        unit_free_blocks(unit_blocks(size, 5));
}

TEST(json_names_what_serves)
{
    static const char *const wanted[] = {
        "\"name\": \"hakmem\"",
        "\"version\": \"" HAK_VERSION "\"",
        "\"tiny_header\": \"" HAK_TINY_HEADER_NAME "\"",
        "\"cache\": \"" HAK_CACHE_NAME "\"",
        "\"source\": \"environment\"",
        "\"value\": \"a\\u0022b\\u005cc\"",
    };
    unit_start("HAKMEM_STATS_FILE=a\"b\\c HAKMEM_QUIET=1");
    work();
    char *text = unit_stats_text(true);
    for (unsigned i = 0; i < COUNT(wanted); i++)
        if (!strstr(text, wanted[i]))
            fail_msg("no %s", wanted[i]);
    assert_non_null(strstr(text, hak_parts.backend->name));
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        assert_non_null(strstr(text, hak_option_text(&hak_option_table[i], HAK_TEXT_NAME)));
    free(text);
}

static void assert_numbers(const char *section, const char *wanted)
{
    char keys[1000], *rest;
    snprintf(keys, sizeof keys, "%s", wanted);
    for (char *key = strtok_r(keys, " ", &rest); key; key = strtok_r(NULL, " ", &rest))
        unit_stat(section, key);
}

/* A key that is missing, or is in another section, fails. */
TEST(each_section_has_its_numbers)
{
    static const char *const sections[][2] = {
        {"threads", "live cpus started active_slabs pinned_by_fork"},
#define X(name, meaning) " " #name
        {"bins", &("" HAK_COUNTERS(X))[HAK_COUNTING ? 0 : sizeof " mallocs frees" - 1]},
#undef X
        {"stages", "failed"},
        {"budget", "budget_bytes held_bytes peak_bytes purges purged_bytes exceeded"},
        {"container", "limit_bytes current_bytes tight"},
        {"background", "started rounds"},
        {"guard", "sampled no_place"},
        {"dlopen", "deepbind_left_out"},
        {"huge_pages", "timed slow kept_small"},
        {"space", "mapped_bytes handed_out_bytes zones metadata_bytes"},
        {"conservation", "carved_blocks free_blocks free_bytes allocated_blocks allocated_bytes remote_blocks "
                         "large_spans large_bytes violations"},
        {"pages", "unused active full partial empty span returned"},
        {"release", "advice lazy_bytes"},
        {"large", "spans directs resized_in_place remapped taken rounded grown_in_place live_bytes "
                  "cached_bytes cache_hits cache_misses cache_over_budget cache_evicted "
                  "direct_mappings direct_bytes spare_bytes"},
        {"lru", "cached cached_bytes pushes hits misses evictions"},
        {"page_heap", "superslabs_mapped dirty_bytes refused_bytes lock_taken"},
    };
    unit_start(NULL);
    for (unsigned i = 0; i < COUNT(sections); i++)
        assert_numbers(sections[i][0], sections[i][1]);
    assert_true(hak_init());
    if (!strcmp(hak_parts.backend->name, "shared_pool"))
        assert_numbers("shared_pool", "partial_slabs prefault_touched");
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (!strcmp(hak_frontends[i]->name, "pool"))
            assert_numbers("pool", "chunk_bytes chunks_mapped");
    for (const struct hak_stage *stage = hak_parts.backend->stages; stage->name; stage++)
        unit_stat("stages", stage->name);
}

static unsigned occurrences(const char *text, const char *word)
{
    unsigned n = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

static void assert_each_key(const char *text, const char *wanted, unsigned times)
{
    char keys[100], quoted[40], *rest;
    snprintf(keys, sizeof keys, "%s", wanted);
    for (char *key = strtok_r(keys, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        snprintf(quoted, sizeof quoted, "\"%s\":", key);
        if (occurrences(text, quoted) != times)
            fail_msg("%s: %u times instead of %u", key, occurrences(text, quoted), times);
    }
}

TEST(each_setting_class_and_stage_is_described)
{
    unit_start(NULL);
    work();
    char *text = unit_stats_text(true), *calls = strstr(text, "\"os_calls\"");
    assert_non_null(calls);
    assert_each_key(text, "source type moves inherited", HAK_OPTION_COUNT);
    assert_each_key(text, "stride frontend usable slab_pages bin_limit", HAK_NCLASSES);
    assert_each_key(calls, "calls failed ns regret_bytes", occurrences(calls, "\"call\":"));
    assert_each_key(calls, "p50_ns p99_ns log2_ns", occurrences(calls, "\"worst_ns\":"));
    unsigned numbers = 0, choices = 0, stages = 0;
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        choices += hak_option_table[i].type == HAK_TYPE_ENUM;
        numbers += hak_option_table[i].type != HAK_TYPE_ENUM && hak_option_table[i].type != HAK_TYPE_TEXT;
    }
    assert_each_key(text, "default", numbers + choices);
    assert_each_key(text, "choices", choices);
    assert_each_key(text, "min max", numbers);
    while (hak_parts.backend->stages[stages].name)
        stages++;
    assert_each_key(text, "locked finds", stages);
    assert_non_null(strstr(text, "\"type\": \"bool\""));
    free(text);
}

/* The sums are those of the page descriptors and of the counters. */
TEST(numbers_are_those_of_the_heap)
{
    unit_start(NULL);
    work();
    struct unit_block *small = unit_blocks(100, 10), *large = unit_blocks(100000, 2);
    hak_bins_flush(unit_thread());
    struct hak_space_stats space;
    hak_space_stats(&space);
    struct hak_census c = unit_census();
    assert_int_equal(c.used - c.remote, 10);
    assert_int_equal(c.live_large, 2);
    assert_in_range(space.handed_out, (unit_pages_in_use(&c) + c.pages[HAK_SLAB_SPAN]) * HAK_PAGE, space.mapped);
    struct hak_heaps_totals t = unit_totals();
    for (unsigned s = 0; s < HAK_SLAB_NSTATES; s++)
        assert_int_equal(unit_stat("pages", hak_slab_state_name((enum hak_slab_state)s)), c.pages[s]);
    assert_int_equal(unit_stat("slabs", "unused_to_active"), unit_transitions(HAK_SLAB_UNUSED, HAK_SLAB_ACTIVE));
    for (unsigned i = 0; hak_parts.backend->stages[i].name; i++)
        assert_int_equal(unit_stat("stages", hak_parts.backend->stages[i].name), t.counters.stages[i]);
    assert_int_equal(unit_stat("conservation", "carved_blocks"), c.carved);
    assert_int_equal(unit_stat("conservation", "free_blocks"), c.free);
    assert_int_equal(unit_stat("conservation", "allocated_blocks"), c.used);
    assert_int_equal(unit_stat("conservation", "free_bytes"), c.free_bytes);
    assert_int_equal(unit_stat("conservation", "allocated_bytes"), c.allocated_bytes);
    assert_int_equal(unit_stat("threads", "live"), 1);
    assert_int_equal(unit_stat("threads", "started"), 1);
    assert_int_equal(unit_stat("bins", "refills"), t.counters.refills);
    unit_free_blocks(small);
    unit_free_blocks(large);
}

TEST(writing_makes_no_call_of_memory_and_tells_of_errors)
{
    unit_start(NULL);
    work();
    uint64_t before = fake_os_total();
    char *text = unit_stats_text(false);
    assert_int_equal(fake_os_total(), before);
    assert_null(strpbrk(text, "{}[]\""));
    assert_non_null(strstr(text, "violations: 0"));
    free(text);
    assert_int_equal(hak_stats_write(-1, true), -EBADF);
}

/* The process writes the file that HAKMEM_STATS_FILE names. */
TEST(at_exit)
{
    unit_start("HAKMEM_STATS=json HAKMEM_STATS_FILE=/proc/self/fd/9");
    if (!unit_argument) {
        static char text[60000];
        assert_int_equal(unit_spawn("at_exit", "child", text, sizeof text), 0);
        assert_non_null(strstr(text, "\"os_calls\""));
    } else {
        work();
    }
}

static uint64_t violations(void)
{
    struct hak_census c;
    hak_stats_census(&c);
    return c.violations;
}

TEST(each_breach_is_a_violation)
{
    unit_start(NULL);
    char *p = hak_malloc(2000);
    struct hak_slab *slab = hak_space_slab(p);
    uint32_t carved = slab->carved, used = slab->used;
    assert_int_equal(violations(), 0);
    slab->used++; /* more than were carved and are not free */
    assert_int_equal(violations(), 1);
    slab->carved = slab->capacity + 1; /* more than there is room for, all of them used */
    slab->used = slab->carved - hak_slab_free_blocks(slab);
    assert_int_equal(violations(), 1);
    slab->carved = slab->capacity;
    slab->used = slab->carved - hak_slab_free_blocks(slab);
    assert_int_equal(violations(), 0);
    slab->carved = carved;
    slab->used = used;
    hak_next_store(p, NULL);
    hak_slab_remote_put(slab, (struct hak_chain){p, p, 1});
    slab->carved -= slab->used; /* more returned than were in use */
    slab->used = 0;
    assert_int_equal(violations(), 1);
}
