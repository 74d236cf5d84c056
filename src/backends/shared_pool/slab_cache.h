/* SPDX-License-Identifier: MIT
 * The slabs that nobody owns, of each class, on lock-free stacks: EMPTY ones, whose pages are not free, and PARTIAL
 * ones. Too many EMPTY ones of a class give their pages to the page heap together, under one lock. A PARTIAL one whose
 * last block comes back stays on its stack, where the next request of its class finds it: it is idle. When several of
 * a class are, or after a while, the stack is swept, a few slabs at a time: idle ones become EMPTY. Any thread. */
#ifndef SHARED_POOL_SLAB_CACHE_H
#define SHARED_POOL_SLAB_CACHE_H

#include "core/plugin.h"

/* Takes an EMPTY slab, or a PARTIAL one, all of whose blocks may be back. May sweep. */
void hak_slab_cache_put(struct hak_slab *slab);
/* The last block of a PARTIAL slab of the class came back; it may be anybody's by now. May sweep. */
void hak_slab_cache_all_back(struct hak_slab *slab, unsigned cls);

/* An EMPTY slab of the class; NULL without. */
struct hak_slab *hak_slab_cache_take_empty(unsigned cls);
/* An EMPTY slab of another class, of the same length and in the same zone. */
struct hak_slab *hak_slab_cache_take_similar(unsigned cls);
/* A PARTIAL slab of the class, adopted by `heap`. */
struct hak_slab *hak_slab_cache_adopt(struct hak_heap *heap, unsigned cls);

/* Sweeps the classes with idle slabs: all of them, or only those that served no idle one since the last time. Looks at
 * so many slabs at most; true if there may be more. Where it is to look at UINT_MAX it waits for another thread's
 * sweep, and then for a fork, if it holds no lock; else it does nothing meanwhile. */
bool hak_slab_cache_sweep(bool all, unsigned most);
/* The pages of all slabs without a block outstanding become free: those of EMPTY ones, after a sweep of all; and once
 * in a purge delay, or after a sleep. True: there are more. */
void hak_slab_cache_flush(void);
bool hak_slab_cache_tick(uint64_t now_ms);

#endif
