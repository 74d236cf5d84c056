/* SPDX-License-Identifier: MIT
 * Where the statistics at exit go: to stderr as it was at the start, since many programs close theirs before they end;
 * or to the file of HAKMEM_STATS_FILE. */
#ifndef HAK_STATS_SINK_H
#define HAK_STATS_SINK_H

#include "core/base/words.h"

/* A copy of a descriptor, out of the way of the program's own and closed on exec; -1 if there is none. */
int hak_stats_sink_copy(int fd);
/* Whether the settings want some statistics on stderr. */
bool hak_stats_sink_wants_stderr(void);
/* At the start, if they do: keeps a copy of stderr. */
void hak_stats_sink_keep_stderr(void);
/* A descriptor to write to, for hak_stats_sink_close; -1 if there is none. A program may have closed all descriptors,
 * or have used the copy's number for something else: then stderr is opened again by its name, where it has one. */
int hak_stats_sink_stderr(void);
/* The file; -1 after one line that says why not. */
int hak_stats_sink_file(const char *pattern);
void hak_stats_sink_close(int fd);

#endif
