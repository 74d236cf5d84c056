/* SPDX-License-Identifier: MIT
 * The remote cache: blocks of other threads' slabs that this thread freed wait here, by class, for its next refill of
 * the class. What exceeds the capacity goes home, to the remote lists of the slabs. By the calling thread. */
#ifndef HAK_REMOTE_CACHE_H
#define HAK_REMOTE_CACHE_H

#include "descriptor.h"

/* The cache of a class has got its first block, or is full: then all go home. */
HAK_NOINLINE void hak_remote_cache_check(struct hak_thread *t, unsigned cls);

/* Whether it was checked. */
HAK_INLINE bool hak_remote_cache_put(struct hak_thread *t, unsigned cls, void *block)
{
    struct hak_bin *b = &t->bins[cls];
    hak_next_store(block, b->remote_cache);
    b->remote_cache = block;
    if (HAK_LIKELY(++b->remote_count < b->remote_capacity))
        return false;
    hak_remote_cache_check(t, cls);
    return true;
}

/* All blocks of the class, for a refill; none if they had better go home. */
struct hak_chain hak_remote_cache_take(struct hak_thread *t, unsigned cls);
/* Sends all of them home. */
void hak_remote_cache_flush(struct hak_thread *t);

#endif
