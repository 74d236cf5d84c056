/* SPDX-License-Identifier: MIT */
#include "core/base/options.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static struct hak_option_values options;
static char **entries;
static char text[4096];

static void parse(void)
{
    hak_options_defaults(&options);
    hak_options_parse(&options, NULL, entries);
}

/* Parses one entry; what that writes to stderr is in `text`. */
static void parse_one(const char *entry)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", entry);
    entries = (char *[]){(char[]){"HOME=/"}, copy, NULL};
    unit_stderr_of(parse(), text, sizeof text);
}

static const char *name_of(const struct hak_option_info *info)
{
    return hak_option_text(info, HAK_TEXT_NAME);
}

static const struct hak_option_info *row(const char *name)
{
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        if (!strcmp(name_of(&hak_option_table[i]), name))
            return &hak_option_table[i];
    fail_msg("no setting %s", name);
    return NULL;
}

static bool none_is_set(void)
{
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        if (hak_option_sources[i])
            return false;
    return true;
}

static uint32_t number(const struct hak_option_info *info)
{
    uint32_t n;
    memcpy(&n, (char *)&options + info->offset, sizeof n);
    return n;
}

static bool is_set(const struct hak_option_info *info)
{
    return hak_option_sources[info - hak_option_table];
}

static void assert_default(const struct hak_option_info *info)
{
    assert_false(is_set(info));
    if (info->type == HAK_TYPE_TEXT)
        assert_int_equal(((char *)&options)[info->offset], 0);
    else
        assert_int_equal(number(info), info->default_value);
}

TEST(defaults_are_the_tables)
{
    memset(&options, 1, sizeof options);
    hak_options_defaults(&options);
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        assert_default(&hak_option_table[i]);
}

TEST(rows_are_complete)
{
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_info *o = &hak_option_table[i];
        assert_memory_equal(name_of(o), "HAKMEM_", 7);
        assert_true(hak_option_text(o, HAK_TEXT_MOVES)[0]);
        if (o->type == HAK_TYPE_BOOL || o->type == HAK_TYPE_NUM)
            assert_true(o->min <= o->default_value && o->default_value <= o->max);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(name_of(o), name_of(&hak_option_table[k]));
    }
}

static void assert_number(const struct hak_option_info *o, uint32_t value)
{
    char entry[128];
    snprintf(entry, sizeof entry, "%.39s=%u", name_of(o), value);
    parse_one(entry);
    assert_string_equal(text, "");
    assert_int_equal(number(o), value);
    assert_true(is_set(o));
}

static void assert_refused(const struct hak_option_info *o, const char *value, const char *why)
{
    char entry[512];
    snprintf(entry, sizeof entry, "%.39s=%s", name_of(o), value);
    parse_one(entry);
    assert_default(o);
    if (!strstr(text, why) || strchr(text, '\n') != text + strlen(text) - 1)
        fail_msg("%s gave \"%s\"", entry, text);
}

TEST(numbers_within_their_range)
{
    static const char *const bad[] = {"", " 1", "1 ", "-1", "+1", "0x10", "1.5", "yes", "99999999999999999999", "1K"};
    for (unsigned i = 0; i < COUNT(bad); i++)
        assert_refused(row("HAKMEM_PURGE_DELAY_MS"), bad[i], "not a number from 0 to 3600000; the default is used");
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_info *o = &hak_option_table[i];
        if ((o->type != HAK_TYPE_NUM && o->type != HAK_TYPE_BOOL) || !strcmp(name_of(o), "HAKMEM_QUIET") ||
            !strcmp(name_of(o), "HAKMEM_STRICT"))
            continue;
        assert_number(o, o->min);
        assert_number(o, o->max);
        char beyond[16];
        snprintf(beyond, sizeof beyond, "%u", o->max + 1);
        assert_refused(o, beyond, "not a number from");
        if (o->min)
            assert_refused(o, "0", "not a number from");
    }
}

TEST(choices)
{
    static const char *const bad[] = {"adapt", "fixed|adaptive", ""};
    const struct hak_option_info *o = row("HAKMEM_POOL_TLS_PREWARM");
    parse_one("HAKMEM_POOL_TLS_PREWARM=adaptive");
    assert_int_equal(options.pool_prewarm, 2);
    assert_true(is_set(o));
    for (unsigned i = 0; i < COUNT(bad); i++)
        assert_refused(o, bad[i], "not one of off|fixed|adaptive");

    size_t length;
    assert_memory_equal(hak_option_choice("off|fixed|adaptive", 1, &length), "fixed", 5);
    assert_int_equal(length, 5);
    assert_null(hak_option_choice("off|fixed", 2, &length));
}

TEST(texts)
{
    char value[257] = "", entry[400];
    parse_one("HAKMEM_STATS_FILE=/tmp/%p.json");
    assert_string_equal(options.stats_file, "/tmp/%p.json");
    memset(value, 'x', sizeof value - 1);
    assert_refused(row("HAKMEM_STATS_FILE"), value, "longer than 255 bytes");
    snprintf(entry, sizeof entry, "HAKMEM_STATS_FILE=%s", value + 1);
    parse_one(entry);
    assert_int_equal(strlen(options.stats_file), 255);
}

TEST(unknown_names_get_the_closest_one_and_other_programs_are_left_alone)
{
    static const char *const rows[][2] = {
        {"HAKMEM_BACKENT=legacy", "closest known one is HAKMEM_BACKEND"},
        {"HAKMEM_SUPERSLAB_TTL=1", "closest known one is HAKMEM_SUPERSLAB_TTL_SEC"},
        {"HAKMEM_=1", "unknown setting"},
        {"HAKMEM_STATS_SHM=1", "HAKMEM_STATS_SHM=1: removed; `hakmem stat PID` needs no setting"},
        {"MALLOC_ARENA_MAX=x", NULL},
        {"HAKMEM=1", NULL},
        {"HAKMEM_QUIET", NULL},
    };
    for (unsigned i = 0; i < COUNT(rows); i++) {
        parse_one(rows[i][0]);
        assert_true(rows[i][1] ? strstr(text, rows[i][1]) != NULL : !text[0]);
        assert_true(none_is_set());
    }
    char long_name[400];
    memset(long_name, 'Q', sizeof long_name);
    memcpy(long_name, "HAKMEM_", 7);
    memcpy(long_name + 300, "=1", 3);
    parse_one(long_name);
    assert_non_null(strstr(text, "unknown setting"));
    entries = NULL;
    parse();
    assert_true(none_is_set());
}

TEST(quiet_silences_and_strict_stops_wherever_they_stand)
{
    unit_start(NULL);
    entries = (char *[]){(char[]){"HAKMEM_PURGE_DELAY_MS=x"}, (char[]){"HAKMEM_QUIET=1"}, NULL};
    unit_stderr_of(parse(), text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(options.quiet, 1);
    entries[1] = (char[]){"HAKMEM_STRICT=1"};
    assert_dies(parse(), "HAKMEM_PURGE_DELAY_MS=x: not a number from 0 to 3600000 (HAKMEM_STRICT=1)");
    entries[0] = (char[]){"HAKMEM_PURGE_DELAY=1"};
    assert_dies(parse(), "closest known one is HAKMEM_PURGE_DELAY_MS");
}

/* The Levenshtein distance, by its definition. */
static unsigned edits(const char *a, const char *b)
{
    static unsigned from[101][101];
    size_t m = strlen(a), n = strlen(b);
    for (size_t i = 0; i <= m; i++)
        for (size_t j = 0; j <= n; j++) {
            unsigned kept = i && j ? from[i - 1][j - 1] + (a[i - 1] != b[j - 1]) : ~0u;
            unsigned less = i ? from[i - 1][j] + 1 : ~0u, more = j ? from[i][j - 1] + 1 : ~0u;
            from[i][j] = i || j ? (unsigned)hak_min(kept, hak_min(less, more)) : 0;
        }
    return from[m][n];
}

static const char *closest(const char *name)
{
    const char *best = name_of(&hak_option_table[0]);
    for (unsigned i = 1; i < HAK_OPTION_COUNT; i++)
        if (edits(name, name_of(&hak_option_table[i])) < edits(name, best))
            best = name_of(&hak_option_table[i]);
    return best;
}

static void assert_closest(const char *name)
{
    char entry[80], wanted[120];
    snprintf(entry, sizeof entry, "%s=1", name);
    snprintf(wanted, sizeof wanted, "closest known one is %s;", closest(name));
    parse_one(entry);
    if (!strstr(text, wanted))
        fail_msg("%s: not %s, but %s", name, wanted, text);
}

/* The names are cut, or join the beginning of one setting and the end of another. */
TEST(the_closest_name_has_the_fewest_edits)
{
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        for (unsigned k = 1; k < 4; k++) {
            const char *from = name_of(&hak_option_table[i]),
                       *end = name_of(&hak_option_table[(i + 7 * k) % HAK_OPTION_COUNT]);
            char name[64];
            snprintf(name, sizeof name, "%.*s%sQ", 7 + (int)k, from, end + strlen(end) / k - 1);
            assert_closest(name);
        }
}

static void parse_both(const char *program, char *environment)
{
    entries = (char *[]){environment, NULL};
    hak_options_defaults(&options);
    unit_stderr_of(hak_options_parse(&options, program, environment ? entries : NULL), text, sizeof text);
}

TEST(the_environment_comes_before_the_program)
{
    const struct hak_option_info *delay = row("HAKMEM_PURGE_DELAY_MS"), *limit = row("HAKMEM_LIMIT_MB");
    parse_both("HAKMEM_PURGE_DELAY_MS=7  HAKMEM_LIMIT_MB=9", (char[]){"HAKMEM_PURGE_DELAY_MS=8"});
    assert_int_equal(number(delay), 8);
    assert_int_equal(number(limit), 9);
    assert_int_equal(hak_option_sources[delay - hak_option_table], HAK_FROM_ENVIRONMENT);
    assert_int_equal(hak_option_sources[limit - hak_option_table], HAK_FROM_PROGRAM);
    assert_string_equal(text, "");
    parse_both("HAKMEM_LIMIT_MB=9", NULL);
    assert_int_equal(number(limit), 9);
    parse_both("HAKMEM_LIMIT_MB=x", NULL);
    assert_non_null(strstr(text, "HAKMEM_LIMIT_MB=x: not a number"));
    parse_both("HAKMEM_LIMIT_MB=x HAKMEM_QUIET=0", (char[]){"HAKMEM_QUIET=1"});
    assert_string_equal(text, "");
    parse_both("", NULL);
    assert_true(none_is_set());
}
