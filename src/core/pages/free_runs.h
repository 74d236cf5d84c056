/* SPDX-License-Identifier: MIT
 * Free runs: maximal sequences of adjacent free pages, and the search for the run that serves a request best. Three
 * things describe a run: a bit for each of its pages in their superslabs, which the caller sets and clears; its length,
 * in the descriptor of its first page; and the distance to the first page, in the descriptor of its last page. So
 * neighbours are merged without a search. A bitmap tells which superslabs are wholly free, so that the first page of a
 * run is found in a few steps from any of them. hak_pages_lock protects all of it. */
#ifndef HAK_FREE_RUNS_H
#define HAK_FREE_RUNS_H

#include "superslab.h"

/* Pages within a free run; NULL if none was found. */
struct hak_place {
    struct hak_slab *run;
    char *base;
};

/* What a run must be like. */
struct hak_fit {
    size_t pages, align; /* align: in pages, a power of two; 0 means 1 */
    size_t most;         /* upper limit of the run's length */
};
struct hak_place hak_free_runs_best(unsigned set, struct hak_fit fit);
/* The place of a free page. */
struct hak_place hak_free_runs_at(char *page);
/* The free run that begins behind a run of pages, in the same set; NULL: the page there is not free. */
struct hak_slab *hak_free_runs_behind(const char *base, size_t pages);

/* Removes `pages` pages from the run in which they lie. */
void hak_free_runs_cut(struct hak_place at, size_t pages);
/* Merges pages, whose bits are set, with their free neighbours into one run. */
void hak_free_runs_join(char *base, size_t pages);
/* Called when a superslab has become wholly free, has ceased to be, or has moved to another set. */
void hak_free_runs_note_whole(const struct hak_superslab *s, bool whole);

size_t hak_free_runs_count(void);

#endif
