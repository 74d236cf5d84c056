/* SPDX-License-Identifier: MIT
 * Cache of wholly empty superslabs, bounded in number, bytes and age (runs.c drops what is beyond). Under the pool's
 * lock. */
#ifndef SHARED_POOL_LRU_H
#define SHARED_POOL_LRU_H

#include "superslab.h"

/* Takes a superslab that is wholly free and not indexed. */
void hak_lru_push(struct superslab *s);
/* A superslab of exactly `count` lengths, the most recent; NULL on a miss. */
struct superslab *hak_lru_pop(size_t count, size_t align, bool header);
/* The oldest superslab that is beyond the limits in number, bytes and age, or beyond `keep` bytes; NULL if none is.
 * What the kernel refused, and what a purge has claimed just now, is passed over. */
struct superslab *hak_lru_unwanted(size_t keep);
/* One that is clean leaves the cache, and is unmapped. */
void hak_lru_evict(struct superslab *s, enum hak_cause cause);
void hak_lru_stats(struct hak_stats_writer *w);

#endif
