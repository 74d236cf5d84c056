/* SPDX-License-Identifier: MIT
 * Formats a line on the stack and writes it at once. The ring takes no memory until the first line. */
#include "log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "file.h"
#include "kernel.h"
#include "text.h"

HAK_SELDOM char hak_log_ring[HAK_LOG_RING];
_Atomic(uint32_t) hak_log_written;
const char *hak_log_file = "";

/* --- formats ---------------------------------------------------------------------------------------------- */

struct text {
    char *at, *end;
};

static void put(struct text *t, char c)
{
    if (t->at < t->end)
        *t->at++ = c;
}

static void put_digits(struct text *t, uint64_t n, unsigned base, unsigned width)
{
    char digits[20];
    unsigned i = 0;
    do
        digits[i++] = "0123456789abcdef"[n % base];
    while (n /= base);
    for (; width > i; width--)
        put(t, '0');
    while (i)
        put(t, digits[--i]);
}

static void put_part(struct text *t, const char *part, int most)
{
    for (; most-- && *part; part++)
        put(t, *part);
}

/* One conversion: c, s, .*s, p, d, u or x, these three with l, ll or z, x with a width that zeros fill. Returns its
 * last character. */
static const char *convert(struct text *t, const char *f, va_list *args)
{
    unsigned width = 0;
    int most = -1;
    bool is_long = false;
    for (; !*hak_text_until("csdupx", *f); f++) {
        if (*f == '*')
            most = va_arg(*args, int);
        else if (*f == 'l' || *f == 'z')
            is_long = true;
        else if (*f != '.')
            width = width * 10 + (unsigned)(*f - '0');
    }
    if (*f == 'c') {
        put(t, (char)va_arg(*args, int));
    } else if (*f == 's') {
        put_part(t, va_arg(*args, const char *), most);
    } else if (*f == 'd') {
        long n = is_long ? va_arg(*args, long) : va_arg(*args, int);
        put_part(t, "-", n < 0);
        put_digits(t, n < 0 ? -(uint64_t)n : (uint64_t)n, 10, width);
    } else {
        put_part(t, "0x", 2 * (*f == 'p'));
        uint64_t n = is_long || *f == 'p' ? va_arg(*args, unsigned long) : va_arg(*args, unsigned);
        put_digits(t, n, *f == 'u' ? 10 : 16, width);
    }
    return f;
}

/* The C library's functions may be replaced by some that allocate, and lines are written under locks. The length; the
 * text is terminated, and cut off where there is no room. */
static size_t format_text(char *out, size_t size, const char *format, va_list args)
{
    struct text t = {out, out + size - 1};
    va_list rest;
    va_copy(rest, args);
    for (const char *f = format; *f; f++) {
        if (*f == '%' && f[1] != '%') {
            f = convert(&t, f + 1, &rest);
        } else {
            put(&t, *f);
            f += *f == '%';
        }
    }
    va_end(rest);
    *t.at = 0;
    return (size_t)(t.at - out);
}

/* --- lines ------------------------------------------------------------------------------------------------ */

/* Lines that two threads write at once do not overlap. */
static void keep(const char *line, uint32_t n)
{
    uint32_t at = HAK_ADD_RELAXED(&hak_log_written, n);
    while (n--)
        hak_log_ring[at++ % HAK_LOG_RING] = *line++;
}

/* Writes to the log file; to stderr if there is none, or it cannot be opened. Each line opens the file: a program may
 * close all descriptors, or use the number of ours for another file, which a line must never reach. A pipe that nobody
 * reads stops no thread. */
static void write_out(const char *line, size_t n)
{
    char path[HAK_PATH_MAX];
    int fd = -1;
    if (*hak_log_file) {
        hak_text_path(path, hak_log_file);
        fd = hak_file_create(path, O_WRONLY | O_APPEND, 0600);
    }
    hak_file_write(fd < 0 ? STDERR_FILENO : fd, line, n);
    if (fd >= 0)
        hak_file_close(fd);
}

static void write_line(const char *format, va_list args)
{
    char line[512];
    const size_t prefix = 8;
    hak_move(line, "hakmem: ", prefix);
    size_t n = prefix + format_text(line + prefix, sizeof line - prefix, format, args);
    line[n++] = '\n';
    keep(line, (uint32_t)n);
    write_out(line, n);
}

void hak_text_format(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    format_text(out, size, format, args);
    va_end(args);
}

void hak_text_path(char *out, const char *pattern)
{
    size_t n = 0;
    for (; *pattern && n + 1 < HAK_PATH_MAX; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            hak_text_format(out + n, HAK_PATH_MAX - n, "%d", hak_kernel_pid());
            n += hak_text_length(out + n);
            pattern++;
        } else {
            out[n++] = *pattern;
        }
    }
    out[n] = 0;
}

void hak_log(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

void hak_log_show_ring(void)
{
    if (!*hak_log_file)
        return;
    hak_log_file = "";
    uint32_t end = HAK_LOAD_RELAXED(&hak_log_written), at = end % HAK_LOG_RING;
    if (end > at)
        hak_file_write(STDERR_FILENO, hak_log_ring + at, HAK_LOG_RING - at);
    hak_file_write(STDERR_FILENO, hak_log_ring, at);
}

void hak_log_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    hak_log_show_ring();
    write_line(format, args);
    va_end(args);
    abort();
}

void hak_check_failed(const char *what, const char *file, int line)
{
    hak_log_fatal("internal check failed: %s (%s:%d); please report it", what, file, line);
}
