/* SPDX-License-Identifier: MIT
 * Reads and changes settings of the running process, by name. HAK_OPTIONS_CHANGEABLE (options.h) lists those that can
 * change. Any thread may call these; they return 0 or -errno. */
#ifndef HAK_CONTROL_H
#define HAK_CONTROL_H

#include "core/base/words.h"

/* The value as a text. -ENOENT: no such setting; -ERANGE: it does not fit. */
int hak_control_get(const char *name, char *value, size_t size);
/* -ENOENT: no such setting; -EPERM: it cannot change any more; -EINVAL: not a valid value; else the system's error. */
int hak_control_set(const char *name, const char *value);
/* Sets the mean of the heap profile; -ENOSYS without its observer. */
int hak_control_profile(size_t mean);

#endif
