/* SPDX-License-Identifier: MIT
 * Parses HAKMEM_* without allocating. See options.h. */
#include "options.h"

#include <stdlib.h>
#include <sys/auxv.h>

#include "kernel.h"
#include "layout.h"
#include "log.h"
#include "text.h"

#define PREFIX "HAKMEM_"

/* The texts of all settings, concatenated; those of one setting in the order of enum hak_option_text. */
#define JOINED(name, choices, picks, moves) name "\0" choices "\0" picks "\0" moves
#define HAK_BOOL(field, name, def, moves, sentence) TEXTS(field, name, "", "", moves)
#define HAK_NUM(field, name, def, min, max, moves, sentence) TEXTS(field, name, "", "", moves)
#define HAK_ENUM(field, name, def, choices, moves, sentence) TEXTS(field, name, choices, "", moves)
#define HAK_TEXT(field, name, moves, sentence) TEXTS(field, name, "", "", moves)
#define HAK_PICK(field, name, def, target, picks, moves, sentence) TEXTS(field, name, "", picks, moves)
static const struct texts {
#define TEXTS(field, ...) char field[sizeof(JOINED(__VA_ARGS__))];
#include "hak_settings.def"
#undef TEXTS
} texts = {
#define TEXTS(field, ...) JOINED(__VA_ARGS__),
#include "hak_settings.def"
#undef HAK_BOOL
#undef HAK_NUM
#undef HAK_ENUM
#undef HAK_TEXT
#undef HAK_PICK
#undef TEXTS
};

/* Their descriptions are for tools only. */
#define HAK_BOOL(field, name, def, moves, sentence) HAK_SHOW_TEXT("sentence " name " " sentence)
#define HAK_NUM(field, name, def, min, max, moves, sentence) HAK_SHOW_TEXT("sentence " name " " sentence)
#define HAK_ENUM(field, name, def, choices, moves, sentence) HAK_SHOW_TEXT("sentence " name " " sentence)
#define HAK_TEXT(field, name, moves, sentence) HAK_SHOW_TEXT("sentence " name " " sentence)
#define HAK_PICK(field, name, def, target, picks, moves, sentence) HAK_SHOW_TEXT("sentence " name " " sentence)
#include "hak_settings.def"
#undef HAK_BOOL
#undef HAK_NUM
#undef HAK_ENUM
#undef HAK_TEXT
#undef HAK_PICK

const char *hak_option_text(const struct hak_option_info *info, enum hak_option_text which)
{
    const char *text = (const char *)&texts + info->texts;
    while (which--)
        text += hak_text_length(text) + 1;
    return text;
}

const struct hak_option_info hak_option_table[HAK_OPTION_COUNT] = {
#define AT(field) offsetof(struct hak_option_values, field)
#define ROW(field, type, def, min, max, target, sentence) \
    {def, min, max, AT(field), target, offsetof(struct texts, field), HAK_TYPE_##type, (sentence)[0] == '-'},
#define HAK_BOOL(field, name, def, moves, sentence) ROW(field, BOOL, def, 0, 1, 0, sentence)
#define HAK_NUM(field, name, def, min, max, moves, sentence) ROW(field, NUM, def, min, max, 0, sentence)
#define HAK_ENUM(field, name, def, choices, moves, sentence) ROW(field, ENUM, def, 0, 0, 0, sentence)
#define HAK_TEXT(field, name, moves, sentence) ROW(field, TEXT, 0, 0, 0, 0, sentence)
#define HAK_PICK(field, name, def, target, picks, moves, sentence) ROW(field, BOOL, def, 0, 1, AT(target), sentence)
#include "hak_settings.def"
#undef HAK_BOOL
#undef HAK_NUM
#undef HAK_ENUM
#undef HAK_TEXT
#undef HAK_PICK
};
uint8_t hak_option_sources[HAK_OPTION_COUNT];

static uint32_t *number_at(struct hak_option_values *options, const struct hak_option_info *info)
{
    return (uint32_t *)((char *)options + info->offset);
}

void hak_options_defaults(struct hak_option_values *options)
{
    hak_fill(options, 0, sizeof *options);
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        if (hak_option_table[i].type != HAK_TYPE_TEXT)
            *number_at(options, &hak_option_table[i]) = hak_option_table[i].default_value;
}

const char *hak_option_choice(const char *choices, unsigned i, size_t *length)
{
    for (; i; i--) {
        choices = hak_text_until(choices, '|');
        if (!*choices++)
            return NULL;
    }
    *length = (size_t)(hak_text_until(choices, '|') - choices);
    return choices;
}

/* Levenshtein distance; names are short. */
static unsigned edit_distance(const char *a, size_t a_length, const char *b)
{
    unsigned row[64];
    size_t b_length = hak_min(hak_text_length(b), 63);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_length];
}

static const char *closest_name(const char *name, size_t length)
{
    const char *best = NULL;
    unsigned best_distance = ~0u;
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const char *known = hak_option_text(&hak_option_table[i], HAK_TEXT_NAME);
        unsigned d = edit_distance(name, length, known);
        if (d < best_distance) {
            best_distance = d;
            best = known;
        }
    }
    return best;
}

void hak_options_reject(const struct hak_option_values *options, const char *name, const char *value, const char *why)
{
    if (options->strict)
        hak_log_fatal("%s=%s: %s (HAKMEM_STRICT=1)", name, value, why);
    if (!options->quiet)
        hak_log("%s=%s: %s; the default is used", name, value, why);
}

/* A decimal number, or -1. */
static int64_t parse_number(const char *text)
{
    int64_t n = 0;
    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > INT32_MAX)
            return -1;
        n = n * 10 + (*text - '0');
    }
    return n;
}

/* word has the length, and the same characters. */
static bool is_word(const char *text, const char *word, size_t length)
{
    for (; length && *text == *word; text++, word++)
        length--;
    return !length && !*text;
}

static bool parse_choice(const struct hak_option_info *info, const char *value, uint32_t *out)
{
    size_t length;
    const char *choice, *choices = hak_option_text(info, HAK_TEXT_CHOICES);
    for (unsigned i = 0; (choice = hak_option_choice(choices, i, &length)); i++)
        if (is_word(value, choice, length)) {
            *out = i;
            return true;
        }
    return false;
}

bool hak_option_parse(const struct hak_option_info *info, const char *value, uint32_t *out)
{
    if (info->type == HAK_TYPE_ENUM)
        return parse_choice(info, value, out);
    int64_t n = parse_number(value);
    *out = (uint32_t)n;
    return n >= info->min && n <= info->max;
}

static bool apply(struct hak_option_values *options, const struct hak_option_info *info, const char *value)
{
    char why[160];
    uint32_t number;
    const char *name = hak_option_text(info, HAK_TEXT_NAME);
    if (info->type == HAK_TYPE_TEXT) {
        size_t length = hak_text_length(value);
        if (length < HAK_TEXT_MAX) {
            hak_move((char *)options + info->offset, value, length + 1);
            return true;
        }
        hak_options_reject(options, name, "(long)", "longer than 255 bytes");
        return false;
    }
    if (hak_option_parse(info, value, &number)) {
        *number_at(options, info) = number;
        return true;
    }
    if (info->type == HAK_TYPE_ENUM)
        hak_text_format(why, sizeof why, "not one of %s", hak_option_text(info, HAK_TEXT_CHOICES));
    else
        hak_text_format(why, sizeof why, "not a number from %u to %u", info->min, info->max);
    hak_options_reject(options, name, value, why);
    return false;
}

bool hak_option_is_changeable(const struct hak_option_info *info)
{
#define NUMBER(field) HAK_OPTION_##field,
    static const uint8_t changeable_rows[] = {HAK_OPTIONS_CHANGEABLE(NUMBER)};
    HAK_SHOW_VARIABLE(changeable_rows);
    HAK_SHOW_VARIABLE(texts);
    HAK_SHOW_VARIABLE(hak_option_table);
    for (unsigned i = 0; i < sizeof changeable_rows; i++)
        if (info - hak_option_table == changeable_rows[i])
            return true;
    return false;
}

const struct hak_option_info *hak_option_find(const char *name, size_t length)
{
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const char *known = hak_option_text(&hak_option_table[i], HAK_TEXT_NAME);
        if (is_word(known, name, length))
            return &hak_option_table[i];
    }
    return NULL;
}

static void apply_entry(struct hak_option_values *options, const char *entry, enum hak_option_source source)
{
    const char *equals = hak_text_until(entry, '=');
    if (!*equals)
        return;
    size_t length = (size_t)(equals - entry);
    const struct hak_option_info *info = hak_option_find(entry, length);
    if (info) {
        uint8_t *known = &hak_option_sources[info - hak_option_table];
        if (*known <= source && apply(options, info, equals + 1))
            *known = (uint8_t)source;
        return;
    }
    char name[64], why[160];
    hak_text_format(name, sizeof name, "%.*s", (int)length, entry);
    if (hak_text_is(name, "HAKMEM_STATS_SHM")) /* this name is known for one release */
        hak_text_format(why, sizeof why, "removed; `hakmem stat PID` needs no setting");
    else
        hak_text_format(why, sizeof why, "unknown setting; the closest known one is %s",
                        closest_name(entry, hak_min(length, 63)));
    hak_options_reject(options, name, equals + 1, why);
}

/* Words NAME=VALUE, separated by spaces. */
static void parse_program(struct hak_option_values *options, const char *words)
{
    char word[HAK_TEXT_MAX + 64];
    for (const char *end; *words; words = *end ? end + 1 : end) {
        end = hak_text_until(words, ' ');
        hak_text_format(word, sizeof word, "%.*s", (int)(end - words), words);
        apply_entry(options, word, HAK_FROM_PROGRAM);
    }
}

void hak_options_parse(struct hak_option_values *options, const char *program, char **environment)
{
    static char *nothing[1];
    hak_fill(hak_option_sources, 0, sizeof hak_option_sources);
    if (!environment || hak_kernel_auxv(AT_SECURE))
        environment = nothing;
    /* The two settings that decide how errors are treated come first. */
    static const char first[][16] = {"HAKMEM_QUIET=", "HAKMEM_STRICT="};
    for (unsigned i = 0; i < 2; i++)
        for (char **e = environment; *e; e++)
            if (hak_text_after(*e, first[i]))
                apply_entry(options, *e, HAK_FROM_ENVIRONMENT);
    if (program)
        parse_program(options, program);
    for (char **e = environment; *e; e++)
        if (hak_text_after(*e, PREFIX) && !hak_text_after(*e, first[0]) && !hak_text_after(*e, first[1]))
            apply_entry(options, *e, HAK_FROM_ENVIRONMENT);
}

/* If a setting that picks is set, and its target is not, it sets the target. */
static void pick(struct hak_option_values *options, const struct hak_option_info *info)
{
    char *target = (char *)options + info->target;
    size_t length = 0;
    const char *choice = hak_option_choice(hak_option_text(info, HAK_TEXT_PICKS), *number_at(options, info), &length);
    if (!target[0] && length)
        hak_text_format(target, HAK_TEXT_MAX, "%.*s", (int)length, choice);
}

void hak_options_translate(struct hak_option_values *options)
{
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++)
        if (hak_option_sources[i] && *hak_option_text(&hak_option_table[i], HAK_TEXT_PICKS))
            pick(options, &hak_option_table[i]);
    options->p0_enable = options->p0_enable && !options->p0_disable;
    if (!options->fast_cap_c1)
        options->fast_cap_c1 = options->fast_cap_c0;
}
