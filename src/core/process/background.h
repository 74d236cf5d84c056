/* SPDX-License-Identifier: MIT
 * HAKMEM_BACKGROUND=1: a thread of the library's own that purges idle memory when the program makes no calls. It starts
 * in the library's constructor, or when the program asks for it, and nowhere else: libc calls malloc and free while it
 * holds locks that pthread_create takes. It blocks all signals and never ends; no thread waits for it. A forked child
 * has none until it asks. */
#ifndef HAK_BACKGROUND_H
#define HAK_BACKGROUND_H

#include <sys/types.h>

#include "core/base/stats.h"

/* Once in a process. The thread calls `purge` after each half of the purge delay. pthread_create may call malloc. */
void hak_background_start(void (*purge)(void));
/* parent: its number. In a namespace of its own the child may have the same. */
void hak_background_fork_child(pid_t parent);
void hak_background_stats(struct hak_stats_writer *w);

#endif
