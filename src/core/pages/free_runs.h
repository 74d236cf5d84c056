/* SPDX-License-Identifier: MIT
 * Free runs: which pages of the page heap are free beside each other, and which run serves a request best. A free run is
 * as long as it can be. It is known by three things: the bit of each of its pages in their superslabs, which the caller
 * sets and clears, its length in the descriptor of its first page, and the way back to there in the descriptor of its
 * last page. So neighbours join without a search. Under hak_pages_lock. */
#ifndef HAK_FREE_RUNS_H
#define HAK_FREE_RUNS_H

#include "superslab.h"

/* Pages in a free run; NULL: there are none. */
struct hak_place {
    struct hak_slab *run;
    char *base;
};

/* What a run must be like. */
struct hak_fit {
    size_t pages, align; /* align: in pages, a power of two; 0 means 1 */
    size_t most;         /* it is no longer than this */
    bool roomy;          /* the longest one, not the shortest */
};
struct hak_place hak_free_runs_best(unsigned set, struct hak_fit fit);
/* A superslab that is wholly free and clean. */
struct hak_place hak_free_runs_clean(unsigned set);
/* The place of a free page. */
struct hak_place hak_free_runs_at(char *page);
/* The free run that begins behind a run of pages, in the same set; NULL: the page there is not free. */
struct hak_slab *hak_free_runs_behind(const char *base, size_t pages);

/* So many pages leave the run that they lie in. */
void hak_free_runs_cut(struct hak_place at, size_t pages);
/* Pages, whose bits are set, become a free run together with their free neighbours. */
void hak_free_runs_join(char *base, size_t pages);
size_t hak_free_runs_count(void);

#endif
