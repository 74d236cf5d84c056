/* SPDX-License-Identifier: MIT
 * Lines to stderr, written at once and without allocating, and the checks that end with such a line. Unless the user
 * asks for more, only a wrong setting or a misuse that stops the process prints a line. A ring buffer keeps the last
 * lines, for tools. HAK_CHECK stays in release builds: a broken invariant stops the process. HAK_ASSERT exists in debug
 * builds only. */
#ifndef HAK_LOG_H
#define HAK_LOG_H

#include "file.h"

#define HAK_LOG_RING (16 * HAK_KIB)
extern HAK_HIDDEN char hak_log_ring[HAK_LOG_RING];
/* Bytes written since start; the next line begins at this number, modulo the ring's size. */
extern HAK_HIDDEN _Atomic(uint32_t) hak_log_written;
/* The file to which lines are appended, instead of stderr. When the process aborts, stderr gets the ring's content. */
extern HAK_HIDDEN const char *hak_log_file;
/* If there is such a file, writes the ring to stderr, once. */
void hak_log_show_ring(void);

void hak_log(const char *format, ...) HAK_PRINTF(1, 2);
_Noreturn HAK_COLD void hak_log_fatal(const char *format, ...) HAK_PRINTF(1, 2);
_Noreturn HAK_COLD void hak_check_failed(const char *what, const char *file, int line);
/* snprintf for the library: integers and strings only; the result is always terminated. */
void hak_text_format(char *out, size_t size, const char *format, ...) HAK_PRINTF(3, 4);
/* The name of a file, with %p replaced by the process id; `out` has room for HAK_PATH_MAX. */
void hak_text_path(char *out, const char *pattern);

#define HAK_CHECK(x) (HAK_LIKELY(x) ? (void)0 : hak_check_failed(#x, __FILE__, __LINE__))
#ifdef NDEBUG
#define HAK_ASSERT(x) ((void)0)
#else
#define HAK_ASSERT(x) HAK_CHECK(x)
#endif

#endif
