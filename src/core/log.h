/* SPDX-License-Identifier: MIT
 * One line to stderr, by write(2), without allocating. Nothing here runs unless it was asked for:
 * by a debug setting, a wrong setting, or a misuse that stops the process. */
#ifndef HAK_LOG_H
#define HAK_LOG_H

#include "base.h"

void hak_log(const char *format, ...) HAK_PRINTF(1, 2);
/* snprintf for the library: integers and strings only; the result is always terminated. */
void hak_text_format(char *out, size_t size, const char *format, ...) HAK_PRINTF(3, 4);
_Noreturn HAK_COLD void hak_log_fatal(const char *format, ...) HAK_PRINTF(1, 2);

#endif
