/* SPDX-License-Identifier: MIT
 * HAKMEM_GUARD_RATE=N: about one of N small blocks lies in pages of its own, next to an inaccessible page, and its
 * pages stay inaccessible after free until another block needs them. A program that reads or writes beyond such a
 * block, or uses it after free, stops at that instruction, and hakmem prints what happened. Off by default, when it
 * costs nothing. (The idea is GWP-ASan's.) */
#ifndef HAK_GUARD_H
#define HAK_GUARD_H

#include "core/base/stats.h"

#define HAK_GUARD_MAX (64 * HAK_KIB) /* the largest guarded block */

/* Called after start if the setting asks for it; later calls do nothing. False if no memory is available. */
bool hak_guard_start(void);
/* True from then on, even when no more blocks are to be guarded. */
extern HAK_HIDDEN bool hak_guard_is_on;
/* A guarded block if one is due, else NULL. `caller`: the address to which malloc returns. */
void *hak_guard_sample(size_t size, const void *caller);
/* Reports that `blocks` unguarded blocks were handed out, or put into a bin. */
void hak_guard_count(uint32_t blocks);
/* Usable bytes of a guarded block; 0 if p does not lie in a guarded place. Stops the process if p lies in one but is
 * not the start of a live block; `verb` is the word for the operation in the message. */
size_t hak_guard_usable(const void *p, const char *verb);
/* Takes a guarded block back. */
void hak_guard_free(void *p, const void *caller);
/* Bytes of guarded blocks that are allocated. */
size_t hak_guard_bytes(void);

void hak_guard_stats(struct hak_stats_writer *w);

#endif
