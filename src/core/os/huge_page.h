/* SPDX-License-Identifier: MIT
 * Transparent huge pages, requested while they are cheap. A huge page may cost the kernel, or the host of a virtual
 * machine, much more time than the small pages that it replaces: so the first one of a range is timed, and after
 * three slow ones in a row none is requested for a second. Any thread may call it; no lock: simultaneous callers both
 * measure. */
#ifndef HAK_HUGE_PAGE_H
#define HAK_HUGE_PAGE_H

#include "core/base/stats.h"

#define HAK_HUGE_PAGE (2 * HAK_MIB)

/* Advises huge pages for a writable range, and touches the first one. False if they are slow now, or refused: then the
 * range has small pages. */
bool hak_huge_page_advise(void *base, size_t size);
/* 1: the program requests huge pages there; -1: it wants none; 0: as HAKMEM_THP says. */
void hak_huge_page_request(void *base, size_t size, int wanted);
/* Whether the process was advised huge pages. */
bool hak_huge_page_is_on(void);
/* A part of the range was purged. Prevents khugepaged from making a huge page of the few small ones that are left (by
 * default, one of 512 suffices). */
void hak_huge_page_keep_small(void *base, size_t size);
/* Whether enough of a range is resident that huge pages would add at most a quarter. */
HAK_INLINE bool hak_huge_page_is_dense(size_t resident, size_t size)
{
    return resident >= size / 5 * 4;
}
void hak_huge_page_stats(struct hak_stats_writer *w);

#endif
