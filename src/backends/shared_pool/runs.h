/* SPDX-License-Identifier: MIT
 * Runs of free pages become described and handed out here, and come back: those of slabs as EMPTY slabs on one
 * list, which keep their descriptor while their pages are free and dirty; other runs as plain free pages. Pages
 * that stay dirty go back to the kernel, and wholly free superslabs to the LRU cache. Under the pool's lock. */
#ifndef SHARED_POOL_RUNS_H
#define SHARED_POOL_RUNS_H

#include "superslab.h"

/* A run of a superslab that has so many free pages in a row; NULL without memory. *clean: they read as zero. */
struct hak_slab *hak_runs_take(struct superslab *s, unsigned pages, bool *clean);
/* The first pages of a region that is in no index, handed out as a whole; NULL without memory. */
struct hak_slab *hak_runs_take_whole(struct superslab *s, size_t pages, bool *clean);
/* An EMPTY slab of the class, or one of the same length; NULL if there is none among those that are looked at. */
struct hak_slab *hak_runs_take_empty(unsigned cls, unsigned pages, bool header);
/* Takes an EMPTY slab, and any other run. */
void hak_runs_put_empty(struct hak_slab *slab);
void hak_runs_put(struct hak_slab *slab);

/* Nobody came to a slow path for the purge delay: all that is free now is idle. */
void hak_runs_note_sleep(uint64_t now_ms);
/* Gives back pages that have been dirty for too long: those of cached regions always, those of regions in use
 * as partial release, if that is on. Bounded in bytes, so that nobody waits long; true if more is idle. */
bool hak_runs_age(uint64_t now_ms);
/* Gives back dirty pages until at most `keep` bytes are left; returns bytes given back. */
size_t hak_runs_trim(size_t keep);
/* EMPTY slabs that came so far. */
uint64_t hak_runs_empties(void);

#endif
