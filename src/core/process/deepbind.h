/* SPDX-License-Identifier: MIT
 * A library that is opened with RTLD_DEEPBIND finds the C library's malloc and free before ours, and would free our
 * blocks with it. So dlopen drops the flag, unless HAKMEM_DEEPBIND=1. */
#ifndef HAK_DEEPBIND_H
#define HAK_DEEPBIND_H

#include "core/base/stats.h"

/* The flags for the C library's dlopen. */
int hak_deepbind_flags(const char *file, int flags);

void hak_deepbind_stats(struct hak_stats_writer *w);

#endif
