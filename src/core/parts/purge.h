/* SPDX-License-Identifier: MIT
 * Dirty pages of the page heap go back to the kernel: those that were idle for the delay, what is beyond the allowance,
 * cached superslabs beyond their limits, and all that is free at a trim. That takes two steps: under the page heap's
 * lock a purge claims a few pages, which are nobody's then, neither free nor taken; without it the system call is made;
 * under it again they are settled: clean and free, or, what the kernel refused, dirty, free and set aside. So no thread
 * waits for a system call of another's. One thread at a time purges. The caller holds no lock from HAK_RANK_PURGE on.
 *
 * Fork waits for no purge: what is claimed is written down. Where the claiming thread is not in a child, the next purge
 * there ends what it had begun. */
#ifndef HAK_PURGE_H
#define HAK_PURGE_H

#include "core/base/words.h"

/* After pages were put: what is too much by that, if nobody else purges just now. */
void hak_pages_bound(void);
/* From purge ticks: what is idle, for a short time. True: there is more. */
bool hak_pages_tick(uint64_t now_ms);
/* All but `keep` bytes, also what was refused before. Bytes that went. */
size_t hak_pages_trim(size_t keep);

#endif
