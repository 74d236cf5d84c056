/* SPDX-License-Identifier: MIT
 * A soft budget for the bytes that hakmem holds: HAKMEM_LIMIT_MB, or the limit of a container. Held are the pages of
 * slabs, spans and direct mappings, touched or not, and free pages with old content. Whoever supplies pages tells it
 * here. A request that would pass the budget first purges all that is idle (process/maintenance.h). Then it is served:
 * no request fails for the budget. */
#ifndef HAK_BUDGET_H
#define HAK_BUDGET_H

#include "core/base/stats.h"

/* Clean pages were handed out, and pages went back to the kernel or were never touched. Any lock may be held. */
void hak_budget_take(size_t bytes);
void hak_budget_give(size_t bytes);
size_t hak_budget_held(void);
/* Whether so many bytes more are within it. */
bool hak_budget_allows(size_t bytes);
/* The limit of the container: the budget where HAKMEM_LIMIT_MB sets none. UINT64_MAX: there is none. */
void hak_budget_follow(uint64_t bytes);
/* What was purged to make room for a request of so many bytes. */
void hak_budget_note_purge(size_t wanted, size_t purged);
void hak_budget_stats(struct hak_stats_writer *w);

#endif
