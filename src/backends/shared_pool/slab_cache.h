/* SPDX-License-Identifier: MIT
 * The slabs of each class without an owner: EMPTY slabs, in the run cache, and PARTIAL slabs, on lock-free stacks. A
 * PARTIAL slab whose last block comes back stays on its stack, where the next request of its class
 * finds it: it is idle. When several slabs of a class are idle, or after a while, a sweep visits the stack, a few slabs
 * at a time: idle ones become EMPTY. Any thread may call these functions. */
#ifndef SHARED_POOL_SLAB_CACHE_H
#define SHARED_POOL_SLAB_CACHE_H

#include "core/plugin.h"

/* Puts an EMPTY slab, or a PARTIAL one, all of whose blocks may be back. May sweep. */
void hak_slab_cache_put(struct hak_slab *slab);
/* The last block of a PARTIAL slab of the class came back; another thread may own the slab by now. May sweep. */
void hak_slab_cache_all_back(struct hak_slab *slab, unsigned cls);

/* Takes an EMPTY slab of the class, or of another one, of the same length and in the same zone; NULL: there is none. */
struct hak_slab *hak_slab_cache_take_empty(unsigned cls);
/* Takes a PARTIAL slab of the class; `heap` has adopted it. */
struct hak_slab *hak_slab_cache_adopt(struct hak_heap *heap, unsigned cls);

/* Sweeps classes with idle slabs: all of them, whose whole free pages it purges; or only those of which no idle slab
 * served since the last sweep. Visits at most `most` slabs; true if there may be more. With UINT_MAX it waits for
 * another thread's sweep, and for a fork that waits, if the caller holds no lock; otherwise it does nothing while
 * another thread sweeps. */
bool hak_slab_cache_sweep(bool all, unsigned most);
/* Flush: sweeps all classes. Tick: does the same in bounded steps, once per purge delay, or after a sleep; true if
 * there are more. */
void hak_slab_cache_flush(void);
bool hak_slab_cache_tick(uint64_t now_ms);

#endif
