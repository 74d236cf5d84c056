/* SPDX-License-Identifier: MIT
 * HAKMEM_BACKGROUND=1: a thread of the library's own that gives idle memory back when the program makes no calls.
 * It starts when main is called, so never inside a constructor; blocks all signals; and ends with the process. It is
 * gone in a forked child, where a slow path starts another. When main is called is known to the shared library
 * alone, where it serves malloc (src/api/start_main.c); the archive, -Doverride=false and a library loaded by dlopen
 * are told by hakmem_main_called, or start no thread. */
#ifndef HAK_BACKGROUND_H
#define HAK_BACKGROUND_H

#include "stats.h"

/* All constructors of the start are behind us. */
void hak_background_main(void);
/* From hak_age: in a forked child a thread is wanted. */
extern HAK_HIDDEN _Atomic(bool) hak_background_wanted;
void hak_background_want(uint64_t now_ms);
/* Where nothing is half done and no lock is held, such as the end of a slow path: pthread_create may call malloc. */
void hak_background_start(void);
void hak_background_stop(void); /* at exit */
void hak_background_fork_child(void);
void hak_background_stats(struct hak_stats_writer *w);

#endif
