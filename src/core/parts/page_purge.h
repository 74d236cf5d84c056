/* SPDX-License-Identifier: MIT
 * When dirty pages of the page heap go back to the kernel: those that were idle for the delay, what is beyond the
 * allowance, cached superslabs beyond their limits, and all that is free at a trim. The caller holds no lock. */
#ifndef HAK_PAGE_PURGE_H
#define HAK_PAGE_PURGE_H

#include "purge.h"

/* After pages were put: what is too much by that. */
void hak_pages_bound(void);
/* From purge ticks: what is idle, for a short time. True: there is more. */
bool hak_pages_tick(uint64_t now_ms);
/* All but `keep` bytes. Bytes that went. */
size_t hak_pages_trim(size_t keep);

extern struct hak_purger hak_pages_purger;

#endif
