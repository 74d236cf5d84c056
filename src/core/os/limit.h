/* SPDX-License-Identifier: MIT
 * What RLIMIT_AS and RLIMIT_DATA leave to the process: both count addresses, used or not. */
#ifndef HAK_LIMIT_H
#define HAK_LIMIT_H

#include "core/base/words.h"

/* The lesser of both; SIZE_MAX without a limit. */
size_t hak_limit(void);

/* Whether so little could be had when the library started that nothing is mapped ahead of its use. */
extern HAK_HIDDEN bool hak_limit_is_tight;
/* At the start: looks at both, by two system calls. */
void hak_limit_look(void);
/* At the start, where the kernel refused what is mapped ahead. False: it is so already, or cannot be. */
bool hak_limit_tighten(void);

#endif
