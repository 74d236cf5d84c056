/* SPDX-License-Identifier: MIT
 * Transparent huge pages, asked for where they come cheaply. A huge page may take the kernel, or the host of a
 * virtual machine, much longer than the small ones in its place: the first one of a range is timed, and after a
 * slow one none is asked for during a second. Any thread; no lock: two at once measure twice. */
#ifndef HAK_HUGE_PAGE_H
#define HAK_HUGE_PAGE_H

#include "core/base/stats.h"

#define HAK_HUGE_PAGE (2 * HAK_MIB)

/* Advises a writable range, and touches its first huge page. False if they are slow now, or refused: then the range
 * has small ones. */
bool hak_huge_page_advise(void *base, size_t size);
/* Whether the process was advised huge pages. */
bool hak_huge_page_is_on(void);
/* A part of the range went back. The kernel's own thread would put a huge page where a few small ones are left
 * (khugepaged, by default for a single one of 512): not here. */
void hak_huge_page_keep_small(void *base, size_t size);
/* Whether so much of a range is resident that huge pages would take at most a quarter more. */
HAK_INLINE bool hak_huge_page_is_dense(size_t resident, size_t size)
{
    return resident >= size / 5 * 4;
}
void hak_huge_page_stats(struct hak_stats_writer *w);

#endif
