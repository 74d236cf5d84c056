/* SPDX-License-Identifier: MIT
 * Formats a line on the stack and writes it at once; only integer and string conversions are used,
 * which neither glibc nor musl allocate for. errno is kept. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cancel.h"
#include "file.h"

static void write_line(const char *format, va_list args)
{
    char line[512] = "hakmem: ";
    int saved = errno, cancel = hak_cancel_suspend();
    const int prefix = 8, room = (int)sizeof line - prefix - 1;
    int n = vsnprintf(line + prefix, (size_t)room, format, args);
    n = prefix + (n < 0 ? 0 : n < room ? n : room - 1);
    line[n++] = '\n';
    hak_file_write(STDERR_FILENO, line, (size_t)n);
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

void hak_log(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

void hak_log_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
    abort();
}

void hak_check_failed(const char *what, const char *file, int line)
{
    hak_log_fatal("internal check failed: %s (%s:%d); please report it", what, file, line);
}
