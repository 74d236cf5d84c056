/* SPDX-License-Identifier: MIT
 * PARTIAL slabs, on a lock-free stack for each class. One whose last block comes back stays on its stack, where
 * the next request of its class finds it: it is idle. When several of a class are, or after a while, the stack
 * is swept, a few slabs at a time: idle ones become EMPTY. Any thread, one at a time; whatever may sweep is called without
 * the pool's lock, since an EMPTY slab comes back to the pool through its frontend. */
#ifndef SHARED_POOL_PARTIAL_H
#define SHARED_POOL_PARTIAL_H

#include "core/plugin.h"

/* A slab of the class, adopted by `t`; NULL without. Never sweeps. */
struct hak_slab *hak_partial_take(struct hak_thread *t, unsigned cls);
/* Takes a PARTIAL slab, all of whose blocks may be back. May sweep. */
void hak_partial_put(struct hak_slab *slab);
/* The last block of a slab of the class came back. May sweep. */
void hak_partial_note_idle(unsigned cls);
/* Sweeps the classes with idle slabs: all of them, or only those that served no idle one since the last time. Looks at
 * so many slabs at most; true if there may be more. Where it is to look at UINT_MAX it waits for another thread's sweep,
 * and then for a fork, if it holds no lock; else it does nothing meanwhile. */
bool hak_partial_sweep(bool all, unsigned most);

#endif
