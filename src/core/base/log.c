/* SPDX-License-Identifier: MIT
 * Formats a line on the stack and writes it at once; only integer and string conversions are used, which neither glibc
 * nor musl allocate for. errno is kept. The ring takes no memory until the first line. */
#include "log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cancel.h"
#include "file.h"

HAK_SELDOM char hak_log_ring[HAK_LOG_RING];
_Atomic(uint32_t) hak_log_written;
const char *hak_log_file = "";

/* Concurrent lines of two threads do not overlap. */
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
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0644);
    }
    hak_file_write(fd < 0 ? STDERR_FILENO : fd, line, n);
    if (fd >= 0)
        close(fd);
}

static void write_line(const char *format, va_list args)
{
    char line[512] = "hakmem: ";
    int saved = errno, cancel = hak_cancel_suspend();
    const int prefix = 8, room = (int)sizeof line - prefix - 1;
    int n = vsnprintf(line + prefix, (size_t)room, format, args);
    n = prefix + (n < 0 ? 0 : n < room ? n : room - 1);
    line[n++] = '\n';
    keep(line, (uint32_t)n);
    write_out(line, (size_t)n);
    hak_cancel_resume(cancel);
    errno = saved;
}

void hak_text_format(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out, size, format, args);
    va_end(args);
}

void hak_text_path(char *out, const char *pattern)
{
    size_t n = 0;
    for (; *pattern && n + 1 < HAK_PATH_MAX; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            hak_text_format(out + n, HAK_PATH_MAX - n, "%d", (int)getpid());
            n += strlen(out + n);
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
