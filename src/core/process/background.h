/* SPDX-License-Identifier: MIT
 * HAKMEM_BACKGROUND=1: a thread of the library that purges idle memory while the program makes no calls. A slow path
 * starts it when the heap has grown, and it ends when all that is idle has been returned, so short programs never have
 * it. The C library does not know it: otherwise setuid and its kin would stop the process as soon as one thread has
 * other rights than another, and pthread_create would take locks under which libc calls malloc. So it calls nothing of
 * the C library but memcpy and its kind. It blocks all signals, and ends if the process has other rights by now. */
#ifndef HAK_BACKGROUND_H
#define HAK_BACKGROUND_H

#include <sys/types.h>

#include "core/base/stats.h"

/* Starts the thread, unless this process has it. It calls `purge` every half purge delay, until that returns false. The
 * caller holds no lock. */
void hak_background_start(bool (*purge)(void));
/* parent: the parent's process id, or 0 if the setting is off. In a new namespace, the child's may be the same. */
void hak_background_fork_child(pid_t parent);

void hak_background_stats(struct hak_stats_writer *w);

#endif
