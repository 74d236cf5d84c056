/* SPDX-License-Identifier: MIT
 * A thread's arena: chunks of the backend's pages, each larger than the one before, cut into slabs. Pages of a
 * chunk go back and forth under one lock, which is taken once for a slab, never for a block. A chunk that
 * becomes empty goes back to the backend; those of ended threads wait for another thread to adopt them. */
#ifndef POOL_ARENA_H
#define POOL_ARENA_H

#include "core/heap/descriptor.h"

#define POOL_WARM_CLASSES 7

struct chunk;

/* What the pool keeps for a thread. */
struct arena {
    struct chunk *chunks;
    unsigned level; /* how often the size has doubled */
    /* Of each prewarmed class: the bin's refills and its first block after prewarming. While these are the same, none
     * of its blocks was used. */
    struct warm_bin {
        uint32_t refills;
        const void *first;
    } warm[POOL_WARM_CLASSES];
};

/* The calling thread's; NULL without memory. */
struct arena *hak_arena_of(struct hak_thread *t);

int hak_arena_init(const struct hak_option_values *options, unsigned place);
/* A run of pages with a descriptor that says so; NULL without memory. Calling thread's arena. */
struct hak_slab *hak_arena_take(struct hak_thread *t, unsigned pages);
/* Any thread: takes an EMPTY slab's pages back. */
void hak_arena_put(struct hak_slab *slab);
/* The thread ends: its chunks are up for adoption. */
void hak_arena_abandon(struct hak_thread *t);
/* Free pages go back: idle ones, for a short time, true if more are idle; and all at once, returns bytes. */
bool hak_arena_tick(uint64_t now_ms);
size_t hak_arena_trim(void);
void hak_arena_stats(struct hak_stats_writer *w);

#endif
