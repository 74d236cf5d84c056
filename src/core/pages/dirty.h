/* SPDX-License-Identifier: MIT
 * The account of dirty pages. Each region of pages, a superslab, has one:
 * which free pages hold old content, and since when; which went back to the kernel, for which cause, and were wanted
 * again soon after (regret); which it refused; which were ever handed out; and the charge to the memory budget.
 * Regions with dirty pages stand in a queue, the one that was checked the longest ago first. The queue also knows how
 * many bytes wait, and how many of those were wanted lately. Under the lock of the regions' owner; parts/purge.h makes
 * the system calls.
 *
 * A page is taken, or free, or claimed by a purge. Dirty pages are free ones. Charged to the budget are pages that are
 * taken, claimed or dirty. */
#ifndef HAK_DIRTY_H
#define HAK_DIRTY_H

#include "core/os/os.h"

#define HAK_DIRTY_PAGES_MAX 2048u

enum hak_dirty_set {
    HAK_DIRTY_OLD,     /* free, with old content */
    HAK_DIRTY_IDLE,    /* of those: they were so at the last check */
    HAK_DIRTY_REFUSED, /* of those: the kernel did not take them */
    HAK_DIRTY_PURGED,  /* free or claimed, gone back to the kernel */
    HAK_DIRTY_USED,    /* ever taken */
    HAK_DIRTY_SETS
};

/* Words for the sets of a region. */
#define HAK_DIRTY_WORDS(pages) (HAK_DIRTY_SETS * (((pages) + 63) / 64))

struct hak_dirty {
    struct hak_dirty *next, *prev; /* in the queue, while pages are dirty */
    struct hak_dirty_queue *queue;
    uint64_t *bits; /* HAK_DIRTY_WORDS(pages) */
    char *base;
    size_t unit; /* bytes of a page of this account */
    uint16_t pages, words, dirty, refused;
    enum hak_cause purged_for;
    uint64_t put_ms;     /* when a page last became dirty */
    uint64_t checked_ms; /* when the first became dirty, or the last check */
    uint64_t purged_ms, refused_ms;
    uint64_t torn; /* bit i: a part of the i-th huge page went back */
};

struct hak_dirty_queue {
    size_t unwanted_per_ms; /* bytes that may wait though nobody came, for each millisecond of the delay */
    struct hak_dirty *first, *last;
    unsigned regions;
    size_t waiting, refused; /* bytes: dirty ones without, and with a refusal */
    size_t purged;           /* bytes that went back, and are free since */
    /* How deep requests reached into what waits: dirty bytes taken since less were put. */
    size_t drawn, deepest, deepest_before; /* now; in this window; in the one before */
    size_t regretted;                      /* bytes that had just gone back; fades with the windows */
    uint64_t window_ms;                    /* when it began */
};

#define HAK_DIRTY_UNWANTED_PER_MS (40 * HAK_KIB) /* 4 MiB for the default tenth of a second */

/* A region of so many free pages of `unit` bytes, which read as zero; `bits` are zero. */
void hak_dirty_open(struct hak_dirty *d, struct hak_dirty_queue *queue, char *base, unsigned pages, size_t unit,
                    uint64_t *bits);

/* The region goes, all its pages free and clean. */
void hak_dirty_close(struct hak_dirty *d);

/* Free pages are taken. True: they read as zero; with `uncharged` the budget is not charged for them then. */
bool hak_dirty_take(struct hak_dirty *d, unsigned first, unsigned pages, bool uncharged);
/* Taken pages become free: dirty, or as they were, if they were not charged. */
void hak_dirty_put(struct hak_dirty *d, unsigned first, unsigned pages, bool dirty);
/* Free pages that were never taken become dirty: a huge page made them resident with their neighbours. */
void hak_dirty_soil(struct hak_dirty *d);
/* The pages with old content, a bit each; of those that are taken nothing is said. */
const uint64_t *hak_dirty_old(const struct hak_dirty *d);
/* How many of the pages are dirty. */
unsigned hak_dirty_count(const struct hak_dirty *d, unsigned first, unsigned pages);
/* How many of the pages were taken and did not go back since. */
unsigned hak_dirty_given(const struct hak_dirty *d, unsigned first, unsigned pages);

/* --- for a purge ------------------------------------------------------------------------------------- */

/* Which dirty pages a purge is after. */
struct hak_dirty_choice {
    bool all;   /* not only idle ones */
    bool again; /* also those that were refused */
};
/* The first run of such pages from *first on; its length, 0 without one. */
unsigned hak_dirty_run(const struct hak_dirty *d, unsigned *first, struct hak_dirty_choice choice);
/* The region was looked through: what is dirty now is idle at the next check. It comes last. */
void hak_dirty_checked(struct hak_dirty *d, uint64_t now_ms);
/* Dirty pages are claimed, and then settled: gone back to the kernel for `cause`, or refused. */
void hak_dirty_claim(struct hak_dirty *d, unsigned first, unsigned pages);
void hak_dirty_settle(struct hak_dirty *d, unsigned first, unsigned pages, bool gone, enum hak_cause cause);
/* By the one purge of the region at a time, without the lock. Pages are about to go: the huge pages at their ends, of
 * which a part stays, unless they were torn before; bit i: the i-th of the region. */
uint64_t hak_dirty_tear(struct hak_dirty *d, unsigned first, unsigned pages);
/* Bytes that may wait where pages become idle after `delay_ms`: a few, and as many as were wanted
 * lately, or went too soon. */
size_t hak_dirty_allowance(struct hak_dirty_queue *queue, uint64_t now_ms, uint64_t delay_ms);

#endif
