/* SPDX-License-Identifier: MIT
 * Cache of wholly empty regions, bounded in number, bytes and age. Under the pool's lock. */
#ifndef SHARED_POOL_LRU_H
#define SHARED_POOL_LRU_H

#include "superslab.h"

/* Takes a region that is wholly free and not indexed; drops the oldest ones beyond the limits. */
void hak_lru_push(struct superslab *s);
/* A region of exactly `count` superslabs, the most recent; NULL on a miss. */
struct superslab *hak_lru_pop(size_t count, size_t align, bool header);
/* Drops what is older than the limit. */
void hak_lru_age(uint64_t now_ms);
/* Drops regions until at most `keep` bytes are cached; returns bytes given back. */
size_t hak_lru_trim(size_t keep, enum hak_cause cause);
size_t hak_lru_bytes(void);
void hak_lru_stats(struct hak_stats_writer *w);

#endif
