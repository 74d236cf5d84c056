/* SPDX-License-Identifier: MIT
 * HAKMEM_STATS_SIGNAL: the statistics are written when the signal comes, as at exit. Then what the signal had been for
 * happens: SIGTERM ends a program that has no handler of its own. Without the setting no handler is installed, since a
 * program can see one. */
#ifndef HAK_SIGNAL_H
#define HAK_SIGNAL_H

#include "core/base/words.h"

/* The signal came to a thread with a lock of the library: its slow path's end writes. 0: none waits. */
extern HAK_HIDDEN _Atomic(int) hak_signal_waiting;

/* At the library's start, with the setting: installs the handler, once. A signal that cannot be used is told. */
void hak_signal_start(void);
/* By a thread that holds no lock. */
void hak_signal_write(void);

#endif
