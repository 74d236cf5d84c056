/* SPDX-License-Identifier: MIT
 * Dirty pages go back to the kernel, in two steps: under the owner's lock a purge claims a few of them, which are
 * nobody's then, neither free nor taken; without it the system call is made; under it again they are settled: clean
 * and free, or, what the kernel refused, dirty, free and set aside. So no thread waits for a system call of another's.
 * Each owner of regions has a purger; one thread at a time purges for it. Where it does not say "under the lock", no
 * lock from HAK_RANK_PURGE on may be held.
 *
 * Fork waits for no purge: what is claimed is written down in the purger. Where the claiming thread is not in a child,
 * the next purge there ends what it had begun. */
#ifndef HAK_PURGE_H
#define HAK_PURGE_H

#include "core/base/lock.h"
#include "core/pages/dirty.h"

#define HAK_PURGE_NOT_NOW HAK_NCAUSES
#define HAK_PURGE_TICK_NS 200000u /* of a thread that came for something else */
#define HAK_PURGE_PIECES 32u

/* What is claimed, and goes back to the kernel at once. */
struct hak_purge_batch {
    enum hak_cause cause;
    unsigned n;
    size_t bytes;
    struct hak_purge_piece {
        struct hak_dirty *region;
        unsigned first, pages, settled; /* so many of the pages, the first ones, are */
    } pieces[HAK_PURGE_PIECES];
};

struct hak_purger {
    struct hak_dirty_queue *queue;
    struct hak_lock *lock;    /* the owner's, over the queue and its regions */
    struct hak_lock *purging; /* the owner's, of HAK_RANK_PURGE; held from claim to settle */
    /* Under the lock. Dirty pages are about to be claimed: nobody may take them from here on. False: not these. */
    bool (*claim)(struct hak_dirty *d, unsigned first, unsigned pages);
    /* Under the lock. All of a claim is free again. */
    void (*settle)(struct hak_dirty *d, unsigned first, unsigned pages);
    /* Under which its idle pages go back; HAK_PURGE_NOT_NOW: they stay. */
    enum hak_cause (*cause)(const struct hak_dirty *d);
    struct hak_purge_batch open; /* written under the lock, by who purges */
};

/* From purge ticks: pages that were idle for the delay go, and what is too much, for a short time. True: there is more. */
bool hak_purge_tick_of(struct hak_purger *p, uint64_t now_ms);
/* After pages were put. Under the lock: bytes that may wait, and whether more do, or some are idle. Then, without it:
 * what has waited longest goes, until less than that waits, and less than `most`, and idle pages for a short time.
 * Nothing, while another thread purges. */
size_t hak_purge_allowance(struct hak_purger *p);
bool hak_purge_is_due(struct hak_purger *p);
void hak_purge_due(struct hak_purger *p, size_t most);
/* All goes but `keep` bytes, also what was refused before. Bytes that went. */
size_t hak_purge_trim(struct hak_purger *p, size_t keep);

/* Regions one by one: between enter and leave nobody else purges; false where another thread does, unless it is to be
 * waited for, and during a fork, whose locks may be lent. A batch of a region; false: it has no dirty page that was
 * not refused. */
bool hak_purge_enter(struct hak_purger *p, bool wait);
bool hak_purge_region(struct hak_purger *p, struct hak_dirty *d, enum hak_cause cause);
void hak_purge_leave(struct hak_purger *p);

#endif
