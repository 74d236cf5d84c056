/* SPDX-License-Identifier: MIT
 * HAKMEM_STATS_SIGNAL: the statistics are written when the signal arrives, as at exit. Then the signal's previous
 * action takes place: SIGTERM ends a program without a handler for it. Without the setting no handler is installed,
 * since a program could notice it. HAKMEM_LOG_FILE: the ring is written to stderr before the program aborts. */
#ifndef HAK_SIGNAL_H
#define HAK_SIGNAL_H

#include "core/base/words.h"

/* The process in which the signal came to a thread that holds a lock of the library. 0: none waits. */
extern HAK_HIDDEN _Atomic(int) hak_signal_waiting;

/* At the library's start, with the setting: installs the handler, once. Reports a signal that cannot be used. */
void hak_signal_start(void);
/* The same for SIGABRT, if the program has no handler for it. One that the program installs later replaces ours. */
void hak_signal_show_ring_on_abort(void);
/* Sends that signal again, if it waits in this process; the thread holds no lock. */
void hak_signal_send_again(void);

#endif
