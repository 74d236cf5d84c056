/* SPDX-License-Identifier: MIT
 * Slow paths count their work, in blocks, so that a thread reads the clock once for many of them. Each slow path adds
 * its work. The slow entries end in a maintenance step (process/maintenance.h), which compares it with HAK_WORK_MAX. */
#ifndef HAK_WORK_H
#define HAK_WORK_H

#include "words.h"

#define HAK_WORK_MAX 256u /* at this amount the thread reads the clock */

/* This thread's work since its last maintenance step. */
extern HAK_HIDDEN HAK_THREAD_LOCAL uint32_t hak_work;
/* Memory waits to be purged: the next slow entry of any thread continues the purge. */
extern HAK_HIDDEN _Atomic(bool) hak_purge_waits;
/* No slow path ran for the purge delay before this time: all that was free then is idle. */
extern HAK_HIDDEN _Atomic(uint64_t) hak_slept_ms;
/* How much more than in a busy program a tick does: it is 1 for each 10 ms in which no slow path ran, at most
 * HAK_TICK_MOST. So a program with few slow paths returns its memory as fast as a busy one. */
extern HAK_HIDDEN _Atomic(unsigned) hak_tick_share;
#define HAK_TICK_MOST 4u
/* When a thread of the program last ticked: a recent time that needs no call of the clock. */
extern HAK_HIDDEN _Atomic(uint64_t) hak_awake_ms;

HAK_INLINE void hak_work_add(uint32_t blocks)
{
    hak_work += blocks;
}

#endif
