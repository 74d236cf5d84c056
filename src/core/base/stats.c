/* SPDX-License-Identifier: MIT
 * See stats.h: the three forms. */
#include "stats.h"

#include "file.h"
#include "log.h"
#include "text.h"

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
    put_text(w, text, hak_text_length(text));
}

static void put_end(struct hak_stats_writer *w)
{
    if (w->depth == 0) {
        put_string(w, "\n");
        flush_buffer(w);
    }
    w->first = false;
}

/* --- text and JSON ------------------------------------------------------------------------------------------ */

/* Members of an array's element stand on one line. */
static void put_text_key(struct hak_stats_writer *w, const char *key)
{
    if (w->depth > 2) {
        put_string(w, w->first ? "" : "  ");
        put_string(w, key ? key : "");
        put_string(w, key ? "=" : "");
    } else if (key) {
        put_string(w, "\n");
        for (unsigned i = 1; i < w->depth; i++)
            put_string(w, "  ");
        put_string(w, key);
        put_string(w, ": ");
    } else {
        put_string(w, "\n  ");
    }
}

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

static void put_json_key(struct hak_stats_writer *w, const char *key)
{
    put_string(w, w->first ? "\n" : ",\n");
    for (unsigned i = 0; i < w->depth; i++)
        put_string(w, " ");
    if (key) {
        put_quoted(w, key, hak_text_length(key));
        put_string(w, ": ");
    }
}

static void put_key(struct hak_stats_writer *w, const char *key)
{
    if (w->form == HAK_FORM_JSON)
        put_json_key(w, key);
    else
        put_text_key(w, key);
    w->first = false;
}

/* --- numbers by path: `buffer` holds the path --------------------------------------------------------------- */

static void lengthen_path(struct hak_stats_writer *w, const char *text, size_t length)
{
    if (w->length)
        w->buffer[w->length++] = '.';
    length = hak_min(length, sizeof w->buffer - 2 - w->length);
    hak_move(w->buffer + w->length, text, length);
    w->length += (unsigned)length;
    w->buffer[w->length] = 0;
}

static void open_path(struct hak_stats_writer *w, const char *key)
{
    HAK_CHECK(w->depth < HAK_STATS_DEPTH);
    w->in_element = w->depth && !key;
    w->elements = w->in_element ? w->elements + 1 : 0;
    w->ends[w->depth++] = w->length;
    if (key)
        lengthen_path(w, key, hak_text_length(key));
}

static void pass_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    if (w->in_element && w->length == w->ends[w->depth - 1]) { /* the element has no text */
        char index[12];
        hak_text_format(index, sizeof index, "%u", w->elements - 1);
        lengthen_path(w, index, hak_text_length(index));
    }
    unsigned end = w->length;
    lengthen_path(w, key, hak_text_length(key));
    w->take(w, w->buffer, value);
    w->length = end;
}

/* --- for all forms ------------------------------------------------------------------------------------------ */

static void open_level(struct hak_stats_writer *w, const char *key, const char *bracket)
{
    if (w->form == HAK_FORM_PATHS) {
        open_path(w, key);
        return;
    }
    if (w->depth)
        put_key(w, key);
    if (w->form == HAK_FORM_JSON)
        put_string(w, bracket);
    w->depth++;
    w->first = true;
}

static void close_level(struct hak_stats_writer *w, const char *bracket)
{
    w->depth--;
    if (w->form == HAK_FORM_PATHS) {
        w->length = w->ends[w->depth];
        w->in_element = false;
        return;
    }
    if (w->form == HAK_FORM_JSON)
        put_string(w, bracket);
    put_end(w);
}

void hak_stats_begin(struct hak_stats_writer *w, const char *key)
{
    open_level(w, key, "{");
}

void hak_stats_begin_array(struct hak_stats_writer *w, const char *key)
{
    open_level(w, key, "[");
}

void hak_stats_end(struct hak_stats_writer *w)
{
    close_level(w, "}");
}

void hak_stats_end_array(struct hak_stats_writer *w)
{
    close_level(w, "]");
}

void hak_stats_number(struct hak_stats_writer *w, const char *key, uint64_t value)
{
    char text[24];
    if (w->form == HAK_FORM_PATHS) {
        pass_number(w, key, value);
        return;
    }
    put_key(w, key);
    hak_text_format(text, sizeof text, "%llu", (unsigned long long)value);
    put_string(w, text);
}

void hak_stats_text_n(struct hak_stats_writer *w, const char *key, const char *value, size_t length)
{
    if (w->form == HAK_FORM_PATHS) {
        if (w->in_element)
            lengthen_path(w, value, length);
        return;
    }
    put_key(w, key);
    if (w->form == HAK_FORM_JSON)
        put_quoted(w, value, length);
    else
        put_text(w, value, length);
}

void hak_stats_text(struct hak_stats_writer *w, const char *key, const char *value)
{
    hak_stats_text_n(w, key, value, hak_text_length(value));
}

void hak_stats_bool(struct hak_stats_writer *w, const char *key, bool value)
{
    if (w->form == HAK_FORM_PATHS) {
        pass_number(w, key, value);
        return;
    }
    put_key(w, key);
    put_string(w, value ? "true" : "false");
}
