/* SPDX-License-Identifier: MIT
 * The refill of bins, one for all frontends, and the check that keeps bins within their capacity. A thread calls these
 * for its own bins alone. */
#ifndef HAK_BIN_H
#define HAK_BIN_H

#include "core/base/work.h"
#include "descriptor.h"

/* Whether a refill may take a new slab beyond the memory budget. Within it, NULL may mean: make room first. */
enum hak_refill_mode { HAK_REFILL_WITHIN_BUDGET, HAK_REFILL_BEYOND_BUDGET };
/* Whether a new slab of the class is. */
bool hak_bin_is_within_budget(unsigned cls);

/* One block for the caller; more of them go to the bin. NULL without memory. */
void *hak_bin_refill(struct hak_thread *t, unsigned cls, enum hak_refill_mode mode);
/* Instead of a refill, a block of one of the next three classes that has free ones when this one has none;
 * NULL otherwise. Its stride may be a multiple of nothing: not for aligned requests. */
void *hak_bin_borrow(struct hak_thread *t, unsigned cls);
/* One block from a shared slab, for the orphan: it has no bins. */
void *hak_bin_take_one(struct hak_thread *t, unsigned cls, enum hak_refill_mode mode);
/* Fills a bin up to at least `blocks` blocks, for prewarming. */
void hak_bin_prewarm(struct hak_thread *t, unsigned cls, uint32_t blocks);
#define HAK_BIN_BEAT 128u      /* frees of a class between two heartbeats; each check of a bin is one, too */
#define HAK_BIN_SHORT_BEAT 16u /* the same while idle memory waits to be purged */

/* So many frees until the bin is checked, with heartbeats on the way. */
HAK_INLINE void hak_bin_set_room(struct hak_bin *b, unsigned cls, uint32_t frees)
{
    uint32_t now = (uint32_t)hak_min(frees, HAK_UNLIKELY(HAK_LOAD_RELAXED(&hak_purge_waits)) ? HAK_BIN_SHORT_BEAT : HAK_BIN_BEAT);
    b->later = (uint16_t)(frees - now);
    hak_self.room[cls] = (int32_t)now;
}

/* The bin's room is used up: work is counted, at least. False where the bin is to be checked. A heartbeat comes often,
 * so it takes few instructions. */
HAK_INLINE bool hak_bin_heartbeat(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    if (!b->later)
        return false;
    hak_work_add(HAK_BIN_BEAT);
    hak_bin_set_room(b, cls, b->later);
    return true;
}

/* Drains what it has beyond its capacity. */
void hak_bin_check(struct hak_thread *t, unsigned cls);
/* The same for a thread that has no descriptor, or has ended: it keeps nothing in its bins. */
void hak_bin_leave(unsigned cls);

#endif
