/* SPDX-License-Identifier: MIT
 * The limits RLIMIT_AS and RLIMIT_DATA: both count address space, used or not. */
#ifndef HAK_LIMIT_H
#define HAK_LIMIT_H

#include "core/base/words.h"

/* The lesser of both; SIZE_MAX without a limit. */
size_t hak_limit(void);

/* Whether so little was available when the library started that it maps nothing ahead of its use. */
extern HAK_HIDDEN bool hak_limit_is_tight;
/* At start: reads both, with two system calls. */
void hak_limit_look(void);
/* At start, if the kernel refused the mappings made ahead of use: sets hak_limit_is_tight. False if it is set already,
 * or cannot be set. */
bool hak_limit_tighten(void);

#endif
