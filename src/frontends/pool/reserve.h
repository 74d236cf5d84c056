/* SPDX-License-Identifier: MIT
 * A thread's reserve: pages of the page heap, taken in growing batches, from which slabs are taken without a lock.
 * Pages that the thread does not use for a while return to the page heap, as does the rest of an ended thread's
 * reserve. */
#ifndef POOL_RESERVE_H
#define POOL_RESERVE_H

#include "core/heap/heap.h"

#define POOL_WARM_CLASSES 7

/* The pool's data for a thread. */
struct reserve {
    _Atomic(uint64_t) word;      /* the pages left: see reserve.c */
    struct reserve *next, *prev; /* of all threads, in the order of the visits */
    uint64_t visited_ms;
    unsigned level; /* how often the batch has doubled */
    /* For each prewarmed class: the bin's refills and first block after prewarming. While both are unchanged, no block
     * was used. */
    struct warm_bin {
        uint32_t refills;
        const void *first;
    } warm[POOL_WARM_CLASSES];
};

int hak_reserve_init(const struct hak_option_values *options, unsigned place);
/* The calling thread's; NULL without memory. */
struct reserve *hak_reserve_of(struct hak_heap *heap);
/* Takes a run of the calling thread's reserve, with a descriptor; NULL without memory. */
struct hak_slab *hak_reserve_take(struct hak_heap *heap, unsigned pages);
/* The thread ended: returns its reserve. */
void hak_reserve_end(struct hak_heap *heap);
/* Visits up to `most` reserves that were not visited for `delay_ms`, and returns those that were not used since; 0:
 * returns each. */
void hak_reserve_age(uint64_t now_ms, uint64_t delay_ms, unsigned most);

void hak_reserve_stats(struct hak_stats_writer *w);

#endif
