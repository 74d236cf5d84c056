/* SPDX-License-Identifier: MIT
 * The page-state tracker. Each superslab has one. It knows which free pages hold old content and since when; which
 * pages were purged, for which cause, and were needed again soon after (regret); which pages the kernel refused to
 * take; which were ever handed out; and how many are charged to the memory budget. Superslabs with dirty pages stand in
 * a queue, in the order in which they were last checked: those in which all of them were refused on a list of their
 * own, so that neither frees nor purges visit them in vain. The queue also counts how many bytes are dirty, and how
 * many of those were needed lately. The lock of the page heap protects it; parts/purge.h makes the system calls.
 *
 * A page is taken, or free, or claimed by a purge. Dirty pages are free. The budget is charged for pages that are
 * taken, claimed or dirty. A set of pages is a word: bit i is page i of the superslab. */
#ifndef HAK_DIRTY_H
#define HAK_DIRTY_H

#include "core/os/os.h"

#define HAK_DIRTY_COUNTED 16u

struct hak_dirty {
    struct hak_dirty *next, *prev; /* in the queue, while pages are dirty */
    char *base;
    uint64_t old;        /* free, with old content: dirty */
    uint64_t idle;       /* idle when checked or purged, or purged two delays ago: losing it is no miss */
    uint64_t refused;    /* dirty, and the kernel refused to take them */
    uint64_t purged;     /* free or claimed, and returned to the kernel */
    uint64_t used;       /* taken since all used pages were last purged together */
    uint64_t put_ms;     /* when a page last became dirty */
    uint64_t checked_ms; /* when the first page became dirty, or was last checked */
    uint64_t purged_ms;
    enum hak_cause purged_for;
    /* Bit i: a part of the i-th huge page was purged, or it is kept small for another reason.
     * Bit HAK_DIRTY_COUNTED + i: it was, and its mappings are counted. */
    _Atomic(unsigned) torn;
};

enum { HAK_DIRTY_WAITING, HAK_DIRTY_REFUSED, HAK_DIRTY_LISTS };

struct hak_dirty_queue {
    bool at_once; /* pages are purged as soon as they are free; constant after start */
    struct hak_dirty_list {
        struct hak_dirty *first, *last;
        _Atomic(unsigned) length;
    } lists[HAK_DIRTY_LISTS];
    size_t waiting, refused; /* dirty bytes not refused by the kernel, and refused */
    uint64_t refused_ms;     /* when it last refused some */
    size_t purged;           /* bytes that were purged and are still free */
    /* The estimate of demand:
     * 1. The drawdown is the bytes taken minus the bytes freed since, at least 0. A taken page counts if it was dirty,
     *    or is a miss: purged less than two delays ago, before it was idle.
     * 2. The demand is the largest drawdown, and grows by four times each miss: a miss costs a fault for each system
     *    page.
     * 3. With each delay that passes, the drawdown restarts at 0, and a sixteenth of the demand is forgotten.
     * A page that was idle is no miss: no allowance would have kept it. */
    size_t drawdown, demand;
    uint64_t decayed_ms; /* when the demand last decayed */
    /* The pace: while the program takes pages, so many that it would soon take all that wait, they are not idle before
     * sixteen delays, and as many bytes may wait as are live. */
    size_t live;          /* bytes that are taken */
    size_t taken, wanted; /* bytes taken since the last decay, and before; a sixteenth less with each delay */
    size_t put;           /* bytes put back since the last decay */
    bool calls;           /* some were taken in the delay before the last decay */
};
extern struct hak_dirty_queue hak_dirty_queue;

/* The time after which free memory counts as idle. It may change at any time. */
HAK_NOINLINE uint64_t hak_purge_delay_ms(void);

/* The pace was high at the last free. Then a gap of so many delays is no sleep: the thread may have been held up. */
extern HAK_HIDDEN _Atomic(bool) hak_dirty_is_busy;
#define HAK_DIRTY_GAP 4u

#define HAK_DIRTY_UNWANTED_PER_MS (40 * HAK_KIB) /* may stay dirty without demand; 4 MiB for the default delay */

HAK_INLINE uint64_t hak_page_bits(unsigned first, size_t pages)
{
    return (pages == 64 ? ~(uint64_t)0 : ((uint64_t)1 << pages) - 1) << first;
}

/* How many superslabs have dirty pages. */
HAK_INLINE unsigned hak_dirty_length(void)
{
    return HAK_LOAD_RELAXED(&hak_dirty_queue.lists[HAK_DIRTY_WAITING].length) +
           HAK_LOAD_RELAXED(&hak_dirty_queue.lists[HAK_DIRTY_REFUSED].length);
}

/* The superslab goes away; all its pages are free and clean. */
void hak_dirty_close(struct hak_dirty *d);
/* Free pages are taken. True: they read as zero. */
bool hak_dirty_take(struct hak_dirty *d, uint64_t pages);
/* Taken pages become free and dirty. */
void hak_dirty_put(struct hak_dirty *d, uint64_t pages, uint64_t now_ms);
/* A long block ends: the program may have advised huge pages for it. So its pages are kept small again, if need be.
 * Their mappings remain counted, since it may not have. */
void hak_dirty_forget_torn(struct hak_dirty *d);
/* If some page of the superslab was taken, these free pages, as far as they never were, become dirty: a huge page made
 * them resident with their neighbours. Returns those that became dirty. */
uint64_t hak_dirty_soil(struct hak_dirty *d, uint64_t pages);
/* The pages with old content. The bits of taken pages mean nothing. */
uint64_t hak_dirty_old(const struct hak_dirty *d);

/* --- for a purge ------------------------------------------------------------------------------------- */

/* The superslab was checked: what is dirty now is idle at the next check. It moves to the end of its list. */
void hak_dirty_checked(struct hak_dirty *d, uint64_t now_ms);
/* A purge claims dirty pages, and then settles them: they are returned to the kernel for `cause`, or refused. */
void hak_dirty_claim(struct hak_dirty *d, uint64_t pages);
void hak_dirty_settle(struct hak_dirty *d, uint64_t pages, bool gone, enum hak_cause cause);
/* The most bytes that may stay dirty: HAKMEM_BATCH_MAX_*. */
size_t hak_dirty_most(void);
/* How many bytes may stay dirty now: a base amount, the demand, and at a high pace what is live. */
size_t hak_dirty_allowance(uint64_t now_ms);
/* The delay has passed since then, or sixteen of them while the pace is high; or no thread reached a slow path. */
bool hak_dirty_is_idle_since(uint64_t then_ms, uint64_t now_ms);
/* More bytes are dirty than may be, or some page is idle. */
bool hak_dirty_is_due(uint64_t now_ms);

#endif
