/* SPDX-License-Identifier: MIT
 * The destination of the statistics at exit: stderr as it was at start, since many programs close it before they end;
 * or the file that HAKMEM_STATS_FILE names. */
#ifndef HAK_STATS_SINK_H
#define HAK_STATS_SINK_H

#include "core/base/words.h"

/* Whether the settings want some statistics on stderr. */
bool hak_stats_sink_wants_stderr(void);
/* At start, or when they do: keeps a duplicate of stderr, with a high number and close-on-exec. */
void hak_stats_sink_keep_stderr(void);
/* A descriptor to write to, for hak_stats_sink_close; -1 if there is none. A program may have closed all descriptors,
 * or reused the duplicate's number: then stderr is opened again by its name, if it has one. */
int hak_stats_sink_stderr(void);
/* Opens the file; -errno, after one line that says why. */
int hak_stats_sink_file(const char *pattern);

void hak_stats_sink_close(int fd);

#endif
