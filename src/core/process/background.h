/* SPDX-License-Identifier: MIT
 * HAKMEM_BACKGROUND=1: a thread of the library that purges idle memory while the program makes no calls. It starts in
 * the library's constructor, or when the program asks for it, and nowhere else: libc calls malloc and free while it
 * holds locks that pthread_create takes. It blocks all signals and never ends; no thread waits for it. A forked child
 * has none until it asks for one. */
#ifndef HAK_BACKGROUND_H
#define HAK_BACKGROUND_H

#include <sys/types.h>

#include "core/base/stats.h"

/* Starts the thread, once per process. It calls `purge` every half purge delay. pthread_create may call malloc. */
void hak_background_start(void (*purge)(void));
/* parent: the parent's process id, or 0 if the setting is off. In a new namespace, the child's may be the same. */
void hak_background_fork_child(pid_t parent);
void hak_background_stats(struct hak_stats_writer *w);

#endif
