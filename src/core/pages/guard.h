/* SPDX-License-Identifier: MIT
 * HAKMEM_GUARD_RATE=N: about one of N small blocks lies in pages of its own, against an inaccessible page, and its
 * pages stay inaccessible after free until others need the place. A program that writes or reads beyond such a block,
 * or uses it after free, stops at that very instruction, and hakmem says what it did. Off by default: then it costs
 * nothing. (The idea is that of GWP-ASan.) */
#ifndef HAK_GUARD_H
#define HAK_GUARD_H

#include "core/base/stats.h"

/* Where the setting asks for it, after the start; later calls do nothing. False without memory. */
bool hak_guard_start(void);
/* Since then, also when no more are wanted. */
extern HAK_HIDDEN bool hak_guard_is_on;
/* A guarded block, if it is time for one; else NULL. `caller`: the address to which malloc returns. */
void *hak_guard_sample(size_t size, const void *caller);
/* So many blocks that are not guarded were handed out, or put ready. */
void hak_guard_count(uint32_t blocks);
/* Bytes that the program may use of a guarded block; 0 if p is in no guarded place. Stops the process if it is in one,
 * but no live block; `verb` says what is done with it. */
size_t hak_guard_usable(const void *p, const char *verb);
/* Takes a guarded block back. */
void hak_guard_free(void *p, const void *caller);
void hak_guard_stats(struct hak_stats_writer *w);

#endif
