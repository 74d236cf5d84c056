/* SPDX-License-Identifier: MIT
 * HAKMEM_BACKGROUND=1: a thread of the library's own that purges idle memory when the program makes no calls. It starts
 * at a pulse when the process is old enough that its constructors are over, or when it is told to; blocks all signals;
 * and ends with the process. It is gone in a forked child, where a later pulse starts another. */
#ifndef HAK_BACKGROUND_H
#define HAK_BACKGROUND_H

#include <sys/types.h>

#include "core/base/stats.h"

/* In the library's constructor: the process begins. */
void hak_background_begin(void);
/* From pulses, with nothing half done and no lock held: starts the thread once it is time. The thread calls `purge`,
 * and again after each half of the purge delay. */
void hak_background_want(uint64_t now_ms, void (*purge)(void));
/* Now. pthread_create may call malloc. */
void hak_background_start(void (*purge)(void));
void hak_background_stop(void); /* at exit */
/* parent: its number. In a namespace of its own the child may have the same: then the thread is taken for the
 * parent's. */
void hak_background_fork_child(pid_t parent);
void hak_background_stats(struct hak_stats_writer *w);

#endif
