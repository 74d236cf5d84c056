/* SPDX-License-Identifier: MIT
 * malloc_stats_print: the names of mallctl with their values, as JSON in jemalloc's form, or the sums in its words, and
 * then hakmem's own report. No lock is held while the program's function writes. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jemalloc.h"

#define DEPTH 8u

struct writer {
    void (*write)(void *opaque, const char *text);
    void *opaque;
    bool comma, bins, large; /* a comma comes before the next value; whether to write classes */
    size_t length;
    char text[2048];
};

static void flush_text(struct writer *w)
{
    w->text[w->length] = 0;
    if (w->length)
        w->write(w->opaque, w->text);
    w->length = 0;
}

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list arguments;
    if (w->length > sizeof w->text - 512)
        flush_text(w);
    va_start(arguments, format);
    int n = vsnprintf(w->text + w->length, sizeof w->text - w->length, format, arguments);
    va_end(arguments);
    if (n > 0)
        w->length += (size_t)n < sizeof w->text - w->length ? (size_t)n : sizeof w->text - w->length - 1;
}

static void begin_value(struct writer *w, const char *key, size_t length)
{
    put(w, "%s", w->comma ? "," : "");
    if (length)
        put(w, "\"%.*s\":", (int)length, key);
    w->comma = true;
}

static void open_group(struct writer *w, const char *key, size_t length, char bracket)
{
    begin_value(w, key, length);
    put(w, "%c", bracket);
    w->comma = false;
}

static void close_group(struct writer *w, char bracket)
{
    put(w, "%c", bracket);
    w->comma = true;
}

static void put_value(struct writer *w, const struct je_name *row, const size_t *mib, const char *key)
{
    union je_value value = row->fixed;
    if (!row->type || row->answers || (row->get && row->get(mib, &value)))
        return;
    begin_value(w, key, strlen(key));
    switch (row->type) {
    case JE_flag:
        put(w, "%s", value.flag ? "true" : "false");
        break;
    case JE_text:
        put(w, "\"%s\"", value.text);
        break;
    case JE_ssize:
    case JE_i64:
        put(w, "%" PRId64, value.i64);
        break;
    case JE_number:
    case JE_u32:
        put(w, "%" PRIu32, value.u32);
        break;
    default:
        put(w, "%" PRIu64, value.u64);
    }
}

static void put_rows(struct writer *w, unsigned from, unsigned to, size_t at, size_t depth, size_t *mib);

/* An array of objects, one for each index; of arenas, only all together. */
static void put_indices(struct writer *w, unsigned from, unsigned to, size_t at, size_t depth, size_t *mib)
{
    char kind = je_names[from].name[at + 1];
    if (kind == 'a') {
        mib[depth] = MALLCTL_ARENAS_ALL;
        open_group(w, "merged", 6, '{');
        put_rows(w, from, to, at + 4, depth + 1, mib);
        close_group(w, '}');
        return;
    }
    for (size_t i = 0; je_index_exists(kind, i); i++) {
        mib[depth] = i;
        open_group(w, NULL, 0, '{');
        put_rows(w, from, to, at + 4, depth + 1, mib);
        close_group(w, '}');
    }
}

/* Rows whose names agree before `at`, which is component `depth`. */
static void put_rows(struct writer *w, unsigned from, unsigned to, size_t at, size_t depth, size_t *mib)
{
    while (from < to && depth < DEPTH) {
        const char *key = je_names[from].name + at;
        size_t length = strcspn(key, ".");
        unsigned end = from + 1;
        while (end < to && strncmp(je_names[end].name, je_names[from].name, at + length + 1) == 0)
            end++;
        bool array = key[length] && key[length + 1] == '<' && key[length + 2] != 'a';
        bool hidden = array && !(key[length + 2] == 'b' ? w->bins : w->large);
        if (!key[length]) {
            put_value(w, &je_names[from], mib, key);
            end = from + 1;
        } else if (*key == '<') {
            put_indices(w, from, end, at, depth, mib);
        } else if (!hidden) {
            open_group(w, key, length, array ? '[' : '{');
            put_rows(w, from, end, at + length + 1, depth + 1, mib);
            close_group(w, array ? ']' : '}');
        }
        from = end;
    }
}

static unsigned first_with(const char *prefix)
{
    unsigned i = 0;
    while (i < je_name_count && strncmp(je_names[i].name, prefix, strlen(prefix)))
        i++;
    return i;
}

/* The rows whose names begin so. */
static void put_rows_of(struct writer *w, const char *prefix)
{
    size_t mib[DEPTH];
    unsigned from = first_with(prefix), to = from;
    while (to < je_name_count && strncmp(je_names[to].name, prefix, strlen(prefix)) == 0)
        to++;
    if (strcmp(prefix, "stats.") == 0)
        to = first_with("stats.arenas.");
    put_rows(w, from, to, 0, 0, mib);
}

static void put_json(struct writer *w, const char *options)
{
    size_t mib[DEPTH];
    w->bins = !strchr(options, 'b');
    w->large = !strchr(options, 'l');
    put(w, "{\"jemalloc\":{");
    put_rows_of(w, "version");
    if (!strchr(options, 'g')) {
        put_rows_of(w, "config.");
        put_rows_of(w, "opt.");
        put_rows_of(w, "arenas.");
    }
    put_rows_of(w, "stats.");
    if (!strchr(options, 'm')) {
        open_group(w, "stats.arenas", 12, '{');
        put_rows(w, first_with("stats.arenas."), je_name_count, strlen("stats.arenas."), 2, mib);
        close_group(w, '}');
    }
    put(w, "}}\n");
}

static size_t stat_of(const char *name)
{
    size_t value = 0, size = sizeof value;
    mallctl(name, &value, &size, NULL, 0);
    return value;
}

static void put_sums(struct writer *w, const char *options)
{
    put(w, "___ Begin jemalloc statistics ___\nVersion: \"" JE_VERSION "\"\n");
    put(w, "Allocated: %zu, active: %zu, metadata: %zu (n_thp 0), ", stat_of("stats.allocated"),
        stat_of("stats.active"), stat_of("stats.metadata"));
    put(w, "resident: %zu, mapped: %zu, retained: %zu\n", stat_of("stats.resident"), stat_of("stats.mapped"),
        stat_of("stats.retained"));
    char *report = strchr(options, 'g') ? NULL : je_report(false);
    flush_text(w);
    if (report)
        w->write(w->opaque, report);
    hakmem_free(report);
    put(w, "--- End jemalloc statistics ---\n");
}

static void write_message(void *opaque, const char *text)
{
    (void)opaque;
    je_say(text);
}

JE_EXPORT void malloc_stats_print(void (*write)(void *, const char *), void *opaque, const char *options)
{
    struct writer w = {.write = write ? write : write_message, .opaque = opaque};
    options = options ? options : "";
    je_advance_epoch();
    if (strchr(options, 'J'))
        put_json(&w, options);
    else
        put_sums(&w, options);
    flush_text(&w);
}
