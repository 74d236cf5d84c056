/* SPDX-License-Identifier: MIT
 * The purge returns dirty pages of the page heap to the kernel: pages that were idle for the delay, pages beyond the
 * allowance, cached superslabs beyond their limits, and at a trim all free pages. Under the page heap's lock, a purge
 * claims a few pages, which are then neither free nor taken. It makes the system call without the lock. Under the lock
 * again, it settles the pages: they are clean and free, or, if the kernel refused them, dirty, free and set aside. So
 * no thread waits for another thread's system call. One thread at a time purges. The caller holds no lock of rank
 * HAK_RANK_PURGE or above.
 *
 * Fork does not wait for a purge: claims are recorded. In a child, in which the claiming thread does not exist, the
 * next purge completes them. */
#ifndef HAK_PURGE_H
#define HAK_PURGE_H

#include <sys/uio.h>

#include "core/base/words.h"

/* Called after pages were put: purges what now exceeds the bounds, unless another thread is purging. */
void hak_pages_bound(void);
/* Called by purge ticks: purges idle pages, for a bounded time. True: more are idle. */
bool hak_pages_tick(uint64_t now_ms);
/* Purges system pages inside slabs, which the caller owns. False: another thread purges, or forks. */
bool hak_pages_purge_inside(const struct iovec *ranges, size_t count);
/* Prevents huge pages where the caller's pages lie, and beside them. */
void hak_pages_keep_small(char *base, size_t bytes);
/* Purges all but `keep` bytes, including what the kernel refused before. Returns the bytes purged. */
size_t hak_pages_trim(size_t keep);

#endif
