/* SPDX-License-Identifier: MIT
 * The account of dirty pages. Each superslab has one: which free pages hold old content, and since when; which went
 * back to the kernel, for which cause, and were wanted again soon after (regret); which it refused; which were ever
 * handed out; and the charge to the memory budget. Superslabs with dirty pages stand in a queue, the one that was
 * checked the longest ago first. The queue also knows how many bytes wait, and how many of those were wanted lately.
 * Under the lock of the page heap; parts/purge.h makes the system calls.
 *
 * A page is taken, or free, or claimed by a purge. Dirty pages are free ones. Charged to the budget are pages that are
 * taken, claimed or dirty. A set of pages is a word: bit i is page i of the superslab. */
#ifndef HAK_DIRTY_H
#define HAK_DIRTY_H

#include "core/os/os.h"

struct hak_dirty {
    struct hak_dirty *next, *prev; /* in the queue, while pages are dirty */
    char *base;
    uint64_t old;     /* free, with old content: dirty */
    uint64_t idle;    /* of those: they were so at the last check */
    uint64_t refused; /* of those: the kernel did not take them */
    uint64_t purged;  /* free or claimed, gone back to the kernel */
    uint64_t used;    /* ever taken */
    uint64_t put_ms;     /* when a page last became dirty */
    uint64_t checked_ms; /* when the first became dirty, or the last check */
    uint64_t purged_ms, refused_ms;
    enum hak_cause purged_for;
    unsigned torn; /* bit i: a part of the i-th huge page went back */
};

struct hak_dirty_queue {
    uint64_t delay_ms; /* after which pages are idle; as the next one the same from the start on */
    bool at_once;      /* nothing waits */
    struct hak_dirty *first, *last;
    _Atomic(unsigned) length;
    size_t waiting, refused; /* bytes: dirty ones without, and with a refusal */
    size_t purged;           /* bytes that went back, and are free since */
    /* How deep requests reached into what waits: dirty bytes taken since less were put. */
    size_t drawn, deepest, deepest_before; /* now; in this window; in the one before */
    size_t regretted;                      /* bytes that had just gone back; fades with the windows */
    uint64_t window_ms;                    /* when it began */
};
extern struct hak_dirty_queue hak_dirty_queue;

#define HAK_DIRTY_UNWANTED_PER_MS (40 * HAK_KIB) /* may wait though nobody came; 4 MiB for the default delay */

HAK_INLINE uint64_t hak_page_bits(unsigned first, size_t pages)
{
    return (pages == 64 ? ~(uint64_t)0 : ((uint64_t)1 << pages) - 1) << first;
}

/* The superslab goes, all its pages free and clean. */
void hak_dirty_close(struct hak_dirty *d);
/* Free pages are taken. True: they read as zero; with `uncharged` the budget is not charged for them then. */
bool hak_dirty_take(struct hak_dirty *d, uint64_t pages, bool uncharged);
/* Taken pages become free: dirty, or as they were, if they were not charged. */
void hak_dirty_put(struct hak_dirty *d, uint64_t pages, bool dirty, uint64_t now_ms);
/* Free pages that were never taken become dirty: a huge page made them resident with their neighbours. */
void hak_dirty_soil(struct hak_dirty *d, uint64_t pages);
/* The pages with old content; of those that are taken nothing is said. */
uint64_t hak_dirty_old(const struct hak_dirty *d);

/* --- for a purge ------------------------------------------------------------------------------------- */

/* The superslab was looked through: what is dirty now is idle at the next check. It comes last. */
void hak_dirty_checked(struct hak_dirty *d, uint64_t now_ms);
/* Dirty pages are claimed, and then settled: gone back to the kernel for `cause`, or refused. */
void hak_dirty_claim(struct hak_dirty *d, uint64_t pages);
void hak_dirty_settle(struct hak_dirty *d, uint64_t pages, bool gone, enum hak_cause cause);
/* Bytes that may wait at most: HAKMEM_BATCH_MAX_*. */
size_t hak_dirty_most(void);
/* Bytes that may wait: a few, and as many as were wanted lately, or went too soon. */
size_t hak_dirty_allowance(uint64_t now_ms);
/* Since then nobody came for the delay, or nobody came to any slow path meanwhile. */
bool hak_dirty_is_idle_since(uint64_t then_ms, uint64_t now_ms);
/* More waits than may, or some is idle. */
bool hak_dirty_is_due(uint64_t now_ms);

#endif
