/* SPDX-License-Identifier: MIT
 * Where the statistics at exit go: stderr as it was at the start, since many programs close theirs when they end; or
 * the file of HAKMEM_STATS_FILE. */
#ifndef HAK_OUTLET_H
#define HAK_OUTLET_H

#include "core/base/words.h"

/* A copy of a descriptor, out of the way of the program's own and closed on exec; -1 if there is none. */
int hak_outlet_copy(int fd);
/* Whether the settings want some statistics on stderr. */
bool hak_outlet_wants_stderr(void);
/* At the start, then: keeps a copy of stderr, out of the way and closed on exec. */
void hak_outlet_keep_stderr(void);
/* A descriptor to write to, given back by the other; -1 if there is none. Programs that close all descriptors, or use
 * the copy's number for something else, get their statistics where stderr can be opened again by its name. */
int hak_outlet_stderr(void);
/* The file; -1 after one line that says why not. */
int hak_outlet_file(const char *pattern);
void hak_outlet_close(int fd);

#endif
