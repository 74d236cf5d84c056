/* SPDX-License-Identifier: MIT
 * A thread's reserve: pages of the page heap, taken in batches that grow, and cut into slabs without a lock. What a
 * thread does not use of it for a while goes back to the page heap, as does the rest of an ended thread's. */
#ifndef POOL_RESERVE_H
#define POOL_RESERVE_H

#include "core/heap/heap.h"

#define POOL_WARM_CLASSES 7

/* What the pool keeps for a thread. */
struct reserve {
    _Atomic(uint64_t) word;       /* the pages that are left: see reserve.c */
    struct reserve *next, *prev;  /* of all threads */
    unsigned level;               /* how often the batch has doubled */
    /* Of each prewarmed class: the bin's refills and its first block after prewarming. While these are the same, none
     * of its blocks was used. */
    struct warm_bin {
        uint32_t refills;
        const void *first;
    } warm[POOL_WARM_CLASSES];
};

int hak_reserve_init(const struct hak_option_values *options, unsigned place);
/* The calling thread's; NULL without memory. */
struct reserve *hak_reserve_of(struct hak_heap *heap);
/* A run of the calling thread's reserve, with a descriptor; NULL without memory. */
struct hak_slab *hak_reserve_take(struct hak_heap *heap, unsigned pages);
/* The thread ended: its reserve goes. */
void hak_reserve_end(struct hak_heap *heap);
/* What was not used since the last call goes back, or all. */
void hak_reserve_age(bool all);
void hak_reserve_stats(struct hak_stats_writer *w);

#endif
