/* SPDX-License-Identifier: MIT
 * A library that is opened with RTLD_DEEPBIND finds the C library's malloc and free before ours, and gives our blocks
 * to it. So the flag is left out, unless HAKMEM_DEEPBIND=1 asks for it. */
#ifndef HAK_DEEPBIND_H
#define HAK_DEEPBIND_H

#include "core/base/stats.h"

/* What dlopen is to be called with. */
int hak_deepbind_flags(const char *file, int flags);
void hak_deepbind_stats(struct hak_stats_writer *w);

#endif
