/* SPDX-License-Identifier: MIT
 * HAKMEM_BACKGROUND=1: a thread of the library's own that gives idle memory back when the program makes no calls.
 * It starts at a slow path once main was called, blocks all signals, is gone in a forked child until one of its
 * slow paths starts another, and ends with the process. So no constructor of the program or of a library loaded
 * with it meets the thread. When main is called is known to the shared library alone, where it serves malloc
 * (src/api/start_main.c); the archive, -Doverride=false and a library loaded by dlopen are told by
 * hakmem_main_called, or start no thread. Constructors that dlopen runs after main was called are not told apart
 * from other callers. */
#ifndef HAK_BACKGROUND_H
#define HAK_BACKGROUND_H

#include "stats.h"

/* From hak_age: a thread is wanted and there is none. */
extern HAK_HIDDEN _Atomic(bool) hak_background_wanted;
void hak_background_want(uint64_t now_ms);
/* At the end of a slow path, where nothing is half done and no lock is held: pthread_create may call malloc. */
void hak_background_start(void);

/* All constructors of the start are behind us. */
void hak_background_main(void);
void hak_background_stop(void); /* at exit */
void hak_background_fork_child(void);
void hak_background_stats(struct hak_stats_writer *w);

#endif
