/* SPDX-License-Identifier: MIT
 * Locks with ranks. They are taken in ascending rank; a debug build checks it. process/fork.c takes them all, in this
 * order. A thread knows which locks it holds. One that asks for a lock of its own was interrupted by a signal whose
 * handler called malloc or free: the process stops with one line, rather than wait for itself. */
#ifndef HAK_LOCK_H
#define HAK_LOCK_H

#include <pthread.h>

#include "words.h"

enum hak_rank {
    HAK_RANK_INIT,
    HAK_RANK_PROCESSOR, /* of many; only fork has more than one */
    HAK_RANK_ORPHAN,
    HAK_RANK_THREADS,
    HAK_RANK_FRONTEND_PURGE, /* a purge holds it while it waits for the kernel (parts/purge.h) */
    HAK_RANK_FRONTEND,
    HAK_RANK_SPANS_PURGE,
    HAK_RANK_SPANS,
    HAK_RANK_REGISTRY,
    HAK_RANK_BACKEND_PURGE,
    HAK_RANK_BACKEND,
    HAK_RANK_RELEASE,
    HAK_RANK_RANGE,
    HAK_RANK_META,
    HAK_RANK_GUARD,
    HAK_NRANKS
};

struct hak_lock {
    pthread_mutex_t mutex;
    unsigned rank;
    _Atomic(uint64_t) taken; /* how often; read by the statistics */
};

#define HAK_LOCK_INIT(r) {PTHREAD_MUTEX_INITIALIZER, (r), 0}

void hak_lock_acquire(struct hak_lock *lock);
/* False, and nothing is taken, where another thread holds it. */
bool hak_lock_try(struct hak_lock *lock);
void hak_lock_release(struct hak_lock *lock);
/* Whether this thread holds a lock, or waits for one. */
bool hak_lock_is_any_held(void);
/* Locks of one rank, by who always takes them in the same order. */
void hak_lock_acquire_sibling(struct hak_lock *lock);
void hak_lock_release_sibling(struct hak_lock *lock);
/* For fork, by which a thread has all locks for a while: to take and release one then means nothing. */
void hak_lock_own_all(bool own);
bool hak_lock_owns_all(void);

#endif
