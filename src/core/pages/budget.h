/* SPDX-License-Identifier: MIT
 * A soft budget for the bytes that hakmem holds: HAKMEM_LIMIT_MB, or the limit of a container. It counts the pages of
 * slabs, spans and direct mappings, touched or not, and free pages with old content. The code that supplies pages
 * reports them here. Of the bytes held, those beyond what is resident of the whole process were never touched, and use
 * nothing of the budget. A request that would pass it first purges all that is idle (process/maintenance.h). Then it is
 * served: no request fails because of the budget. A program may set a hard limit, beyond which requests fail. */
#ifndef HAK_BUDGET_H
#define HAK_BUDGET_H

#include "core/base/sealed.h"
#include "core/base/stats.h"

/* Adds clean pages that were handed out; subtracts pages that were purged or never touched. Any lock may be held. */
void hak_budget_take(size_t bytes);
void hak_budget_give(size_t bytes);
size_t hak_budget_held(void);
/* The most that was held at a time. */
size_t hak_budget_peak(void);
/* The limit of the container, or the hard limit, if that is less. */
extern HAK_HIDDEN _Atomic(uint64_t) hak_budget_followed;
/* 0: there is no limit */
HAK_INLINE size_t hak_budget_bytes(void)
{
    return hak_options.limit_mb ? hak_options.limit_mb * HAK_MIB : HAK_LOAD_RELAXED(&hak_budget_followed);
}

/* Whether `bytes` more are within the budget, if there is one. */
bool hak_budget_allows_some(size_t bytes);
HAK_INLINE bool hak_budget_allows(size_t bytes)
{
    return HAK_LIKELY(!hak_budget_bytes()) || hak_budget_allows_some(bytes);
}

/* Reads from the kernel how much is resident. Untouched bytes may be touched at any time, so each tick reads it again
 * if there are some. */
void hak_budget_look(bool if_untouched);
/* Sets the limit of the container, which is the budget if HAKMEM_LIMIT_MB sets none. UINT64_MAX: no limit. */
void hak_budget_follow(uint64_t bytes);
/* A hard limit: requests beyond it fail. 0: none. */
void hak_budget_set_hard(size_t bytes);
/* Whether `bytes` more are within the hard limit, if there is one. */
bool hak_budget_is_possible(size_t bytes);
/* Records how many bytes were purged to make room for a request. */
void hak_budget_note_purge(size_t wanted, size_t purged);

void hak_budget_stats(struct hak_stats_writer *w);

#endif
