/* SPDX-License-Identifier: MIT
 * See stats.h: the three forms. */
#include "stats.h"

#include <string.h>

#include "file.h"
#include "log.h"

/* --- a buffer, and what goes to it ------------------------------------------------------------------------ */

static void flush_buffer(struct hak_stats_writer *w)
{
    unsigned done = 0;
    while (done < w->length && !w->error) {
        ssize_t n = hak_file_write(w->fd, w->buffer + done, w->length - done);
        if (n < 0 && n != -EINTR)
            w->error = (int)-n;
        done += n > 0 ? (unsigned)n : 0;
    }
    w->length = 0;
}

static void put_text(struct hak_stats_writer *w, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (w->length == sizeof w->buffer)
            flush_buffer(w);
        w->buffer[w->length++] = text[i];
    }
}

static void put_string(struct hak_stats_writer *w, const char *text)
{
    put_text(w, text, strlen(text));
}

static void put_number(struct hak_stats_writer *w, uint64_t value)
{
    char text[24];
    hak_text_format(text, sizeof text, "%llu", (unsigned long long)value);
    put_string(w, text);
}

static void put_bool(struct hak_stats_writer *w, bool value)
{
    put_string(w, value ? "true" : "false");
}

static void put_end(struct hak_stats_writer *w)
{
    if (w->depth == 0) {
        put_string(w, "\n");
        flush_buffer(w);
    }
    w->first = false;
}

/* --- text ------------------------------------------------------------------------------------------------- */

/* Members of an array's element stand on one line. */
static void text_key(struct hak_stats_writer *w, const char *key)
{
    if (w->depth > 2) {
        put_string(w, w->first ? "" : "  ");
        put_string(w, key ? key : "");
        put_string(w, "=");
    } else if (key) {
        put_string(w, "\n");
        for (unsigned i = 1; i < w->depth; i++)
            put_string(w, "  ");
        put_string(w, key);
        put_string(w, ": ");
    } else {
        put_string(w, "\n  ");
    }
    w->first = false;
}

static void text_open(struct hak_stats_writer *w, const char *key, bool array)
{
    (void)array;
    if (w->depth)
        text_key(w, key);
    w->depth++;
    w->first = true;
}

static void text_close(struct hak_stats_writer *w, bool array)
{
    (void)array;
    w->depth--;
    put_end(w);
}

static void text_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    text_key(w, key);
    put_number(w, value);
}

static void text_text(struct hak_stats_writer *w, const char *key, const char *value, size_t length)
{
    text_key(w, key);
    put_text(w, value, length);
}

static void text_bool(struct hak_stats_writer *w, const char *key, bool value)
{
    text_key(w, key);
    put_bool(w, value);
}

const struct hak_stats_form hak_stats_as_text = {
    .at_rest = true,
    .open = text_open,
    .close = text_close,
    .number = text_number,
    .text = text_text,
    .boolean = text_bool,
};

/* --- JSON ------------------------------------------------------------------------------------------------- */

static void put_quoted(struct hak_stats_writer *w, const char *text, size_t length)
{
    put_string(w, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        char escaped[8];
        if (c == '"' || c == '\\' || c < 0x20) {
            hak_text_format(escaped, sizeof escaped, "\\u%04x", c);
            put_string(w, escaped);
        } else {
            put_text(w, text + i, 1);
        }
    }
    put_string(w, "\"");
}

static void json_key(struct hak_stats_writer *w, const char *key)
{
    put_string(w, w->first ? "\n" : ",\n");
    for (unsigned i = 0; i < w->depth; i++)
        put_string(w, " ");
    if (key) {
        put_quoted(w, key, strlen(key));
        put_string(w, ": ");
    }
    w->first = false;
}

static void json_open(struct hak_stats_writer *w, const char *key, bool array)
{
    if (w->depth)
        json_key(w, key);
    put_string(w, array ? "[" : "{");
    w->depth++;
    w->first = true;
}

static void json_close(struct hak_stats_writer *w, bool array)
{
    w->depth--;
    put_string(w, array ? "]" : "}");
    put_end(w);
}

static void json_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    json_key(w, key);
    put_number(w, value);
}

static void json_text(struct hak_stats_writer *w, const char *key, const char *value, size_t length)
{
    json_key(w, key);
    put_quoted(w, value, length);
}

static void json_bool(struct hak_stats_writer *w, const char *key, bool value)
{
    json_key(w, key);
    put_bool(w, value);
}

const struct hak_stats_form hak_stats_as_json = {
    .complete = true,
    .at_rest = true,
    .open = json_open,
    .close = json_close,
    .number = json_number,
    .text = json_text,
    .boolean = json_bool,
};

/* --- numbers by path: `buffer` holds the path --------------------------------------------------------------- */

static void lengthen_path(struct hak_stats_writer *w, const char *text, size_t length)
{
    if (w->length)
        w->buffer[w->length++] = '.';
    length = hak_min(length, sizeof w->buffer - 2 - w->length);
    memcpy(w->buffer + w->length, text, length);
    w->length += (unsigned)length;
    w->buffer[w->length] = 0;
}

static void path_open(struct hak_stats_writer *w, const char *key, bool array)
{
    (void)array;
    HAK_CHECK(w->depth < HAK_STATS_DEPTH);
    w->in_element = w->depth && !key;
    w->elements = w->in_element ? w->elements + 1 : 0;
    w->ends[w->depth++] = w->length;
    if (key)
        lengthen_path(w, key, strlen(key));
}

static void path_close(struct hak_stats_writer *w, bool array)
{
    (void)array;
    w->length = w->ends[--w->depth];
    w->in_element = false;
}

static void path_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    if (w->in_element && w->length == w->ends[w->depth - 1]) { /* it has no text */
        char index[12];
        hak_text_format(index, sizeof index, "%u", w->elements - 1);
        lengthen_path(w, index, strlen(index));
    }
    unsigned end = w->length;
    lengthen_path(w, key, strlen(key));
    w->take(w, w->buffer, value);
    w->length = end;
}

static void path_text(struct hak_stats_writer *w, const char *key, const char *value, size_t length)
{
    (void)key;
    if (w->in_element)
        lengthen_path(w, value, length);
}

static void path_bool(struct hak_stats_writer *w, const char *key, bool value)
{
    path_number(w, key, value);
}

const struct hak_stats_form hak_stats_as_paths = {
    .open = path_open,
    .close = path_close,
    .number = path_number,
    .text = path_text,
    .boolean = path_bool,
};

/* --- for all forms ------------------------------------------------------------------------------------------ */

void hak_stats_begin(struct hak_stats_writer *w, const char *key)
{
    w->form->open(w, key, false);
}

void hak_stats_begin_array(struct hak_stats_writer *w, const char *key)
{
    w->form->open(w, key, true);
}

void hak_stats_end(struct hak_stats_writer *w)
{
    w->form->close(w, false);
}

void hak_stats_end_array(struct hak_stats_writer *w)
{
    w->form->close(w, true);
}

void hak_stats_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    w->form->number(w, key, value);
}

void hak_stats_text_n(struct hak_stats_writer *w, const char *key, const char *value, size_t length)
{
    w->form->text(w, key, value, length);
}

void hak_stats_text(struct hak_stats_writer *w, const char *key, const char *value)
{
    w->form->text(w, key, value, strlen(value));
}

void hak_stats_bool(struct hak_stats_writer *w, const char *key, bool value)
{
    w->form->boolean(w, key, value);
}
