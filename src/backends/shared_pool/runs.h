/* SPDX-License-Identifier: MIT
 * Runs of free pages become described and handed out here, and come back: those of slabs as EMPTY slabs,
 * which keep their descriptor while their pages are free and dirty; other runs as plain free pages. Pages
 * that stay dirty go back to the kernel, and wholly free superslabs to the LRU cache. Under the pool's lock, where
 * nothing else is said. */
#ifndef SHARED_POOL_RUNS_H
#define SHARED_POOL_RUNS_H

#include "core/parts/purge.h"
#include "superslab.h"

/* A run of a superslab that has so many free pages in a row; NULL without memory. *zero: they read as zero. `lent` as
 * in hak_dirty_take. */
struct hak_slab *hak_runs_take(struct superslab *s, unsigned pages, bool lent, bool *zero);
/* The first pages of a superslab that is in no index, lent as a whole; NULL without memory. */
struct hak_slab *hak_runs_take_whole(struct superslab *s, size_t pages, bool *zero);
/* An EMPTY slab of the class, or one of the same length; NULL if there is none among those that are looked at. */
struct hak_slab *hak_runs_take_empty(unsigned cls, unsigned pages, bool header);
/* Takes an EMPTY slab, and any other run. */
void hak_runs_put_empty(struct hak_slab *slab);
void hak_runs_put(struct hak_slab *slab);

/* Dirty pages go through it: those of cached superslabs always, those of superslabs in use as partial release. */
extern struct hak_purger hak_runs_purger;
/* Whether more waits, or is cached, than may; then, without the lock: what has waited longest goes. */
bool hak_runs_exceed(void);
void hak_runs_bound(void);
/* Without the lock: cached superslabs go that are beyond the limits or beyond `keep` bytes. True: there are more, and
 * the time is over. */
bool hak_runs_evict(size_t keep, enum hak_cause cause, uint64_t end_ns);
/* EMPTY slabs that came so far. */
uint64_t hak_runs_empties(void);

#endif
