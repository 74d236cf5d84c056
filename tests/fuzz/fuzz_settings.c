/* SPDX-License-Identifier: MIT
 * libFuzzer's entry for settings: lines are entries of an environment, and a first byte above 127 stands for the name
 * of a row of the table. Compares the results of hak_options_parse with those of a second, simpler parser: values,
 * which settings count as set, the number of lines, and whether strict stops the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/options.h"
#include "shadow.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
void __wrap_hak_log(const char *format, ...) HAK_PRINTF(1, 2);
_Noreturn void __wrap_hak_log_fatal(const char *format, ...) HAK_PRINTF(1, 2);

enum { ENTRIES = 64, TEXT = 1 << 14 };

static jmp_buf stopped;
static unsigned lines;

static void format_line(const char *format, va_list args)
{
    char line[512];
    int n = vsnprintf(line, sizeof line, format, args);
    if (n <= 0 || strncmp(line, "HAKMEM_", 7))
        stress_fail("fuzz: a line that names no setting: %s", line);
    lines++;
}

void __wrap_hak_log(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    format_line(format, args);
    va_end(args);
}

void __wrap_hak_log_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    format_line(format, args);
    va_end(args);
    longjmp(stopped, 1);
}

/* --- the simple parser ------------------------------------------------------------------------------------- */

static const char *name_of(const struct hak_option_info *row)
{
    return hak_option_text(row, HAK_TEXT_NAME);
}

struct reading {
    struct hak_option_values options;
    bool set[HAK_OPTION_COUNT];
    unsigned lines;
    bool stops;
};

static bool read_number(const struct hak_option_info *row, const char *value, uint32_t *out)
{
    size_t zeros = strspn(value, "0"), digits = strspn(value + zeros, "0123456789");
    if (!*value || value[zeros + digits] || digits > 10)
        return false;
    unsigned long long n = strtoull(value, NULL, 10);
    *out = (uint32_t)n;
    return n >= row->min && n <= row->max;
}

static bool read_choice(const struct hak_option_info *row, const char *value, uint32_t *out)
{
    char choices[128], *rest = choices, *choice;
    snprintf(choices, sizeof choices, "%s", hak_option_text(row, HAK_TEXT_CHOICES));
    for (*out = 0; (choice = strsep(&rest, "|")); ++*out)
        if (!strcmp(choice, value))
            return true;
    return false;
}

static bool read_value(struct reading *r, const struct hak_option_info *row, const char *value)
{
    char *field = (char *)&r->options + row->offset;
    uint32_t n;
    if (row->type == HAK_TYPE_TEXT)
        return strlen(value) < HAK_TEXT_MAX && strcpy(field, value);
    if (!(row->type == HAK_TYPE_ENUM ? read_choice(row, value, &n) : read_number(row, value, &n)))
        return false;
    memcpy(field, &n, sizeof n);
    return true;
}

static void read_entry(struct reading *r, const char *entry)
{
    const char *value = strchr(entry, '=');
    if (r->stops || !value)
        return;
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_info *row = &hak_option_table[i];
        size_t length = strlen(name_of(row));
        if (length != (size_t)(value - entry) || memcmp(entry, name_of(row), length))
            continue;
        if (!read_value(r, row, value + 1))
            break;
        r->set[i] = true;
        return;
    }
    r->stops = r->options.strict;
    r->lines += r->stops || !r->options.quiet;
}

/* QUIET first, then STRICT, then the rest: they decide how errors of the rest are treated. */
static void read_plainly(struct reading *r, char **entries)
{
    static const char *const order[] = {"HAKMEM_QUIET=", "HAKMEM_STRICT=", "HAKMEM_"};
    hak_options_defaults(&r->options);
    for (unsigned turn = 0; turn < 3; turn++)
        for (char **e = entries; *e; e++)
            if (!strncmp(*e, order[turn], strlen(order[turn])) &&
                (turn < 2 || (strncmp(*e, order[0], strlen(order[0])) && strncmp(*e, order[1], strlen(order[1])))))
                read_entry(r, *e);
}

/* --- input ------------------------------------------------------------------------------------------------- */

static char text[TEXT], *entries[ENTRIES + 1];

static void make_entries(const uint8_t *bytes, size_t size)
{
    size_t used = 0, count = 0, i = 0;
    while (i < size && count < ENTRIES) {
        entries[count++] = text + used;
        if (bytes[i] > 127)
            used +=
                (size_t)sprintf(text + used, "%s=", name_of(&hak_option_table[(bytes[i++] - 128u) % HAK_OPTION_COUNT]));
        for (; i < size && bytes[i] != '\n' && bytes[i]; i++)
            text[used++] = (char)bytes[i];
        text[used++] = 0;
        i++;
    }
    entries[count] = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct hak_option_values options;
    static struct reading expected;
    if (size > TEXT / 4)
        return -1;
    make_entries(bytes, size);
    memset(&expected, 0, sizeof expected);
    read_plainly(&expected, entries);
    lines = 0;
    hak_options_defaults(&options);
    bool stops = setjmp(stopped) != 0;
    if (!stops)
        hak_options_parse(&options, NULL, entries);
    if (stops != expected.stops || lines != expected.lines)
        stress_fail("fuzz: stops %d, %u lines; expected %d, %u", stops, lines, expected.stops, expected.lines);
    for (unsigned i = 0; i < HAK_OPTION_COUNT; i++) {
        const struct hak_option_info *row = &hak_option_table[i];
        const char *mine = (char *)&options + row->offset, *theirs = (char *)&expected.options + row->offset;
        bool differs =
            row->type == HAK_TYPE_TEXT ? strcmp(mine, theirs) != 0 : memcmp(mine, theirs, sizeof(uint32_t)) != 0;
        if (differs || (hak_option_sources[i] != 0) != expected.set[i])
            stress_fail("fuzz: %s differs", name_of(row));
    }
    return 0;
}
