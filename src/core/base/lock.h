/* SPDX-License-Identifier: MIT
 * Locks with ranks. They are taken in ascending rank; a debug build checks it. process/fork.c takes them all, in this
 * order. A thread knows which locks it holds. One that asks for a lock of its own was interrupted by a signal whose
 * handler called malloc or free: the process stops with one line, rather than wait for itself.
 *
 * A thread that forks has all locks while other libraries' handlers run and the kernel copies the process. Where such a
 * library registered its handlers before ours, its handler may wait for a mutex whose holder waits for a lock of ours.
 * So who has waited for a while, and sees the forking thread asleep, borrows all locks: nothing they guard is half
 * changed. One thread borrows at a time, and the forking thread takes them back before it releases them. */
#ifndef HAK_LOCK_H
#define HAK_LOCK_H

#include "words.h"

enum hak_rank {
    HAK_RANK_FORK, /* one fork at a time */
    HAK_RANK_INIT,
    HAK_RANK_MAKING, /* heaps of processors */
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
    HAK_RANK_RANGE,
    HAK_RANK_META,
    HAK_RANK_GUARD,
    HAK_NRANKS
};

struct hak_lock {
    _Atomic(unsigned) word; /* 0 when free */
    unsigned rank;
    _Atomic(uint64_t) taken; /* how often; read by the statistics */
};

#define HAK_LOCK_INIT(r) {0, (r), 0}

void hak_lock_acquire(struct hak_lock *lock);
/* False, and nothing is taken, where another thread holds it. */
bool hak_lock_try(struct hak_lock *lock);
void hak_lock_release(struct hak_lock *lock);
/* Whether this thread holds a lock, or waits for one. */
bool hak_lock_is_any_held(void);
/* By fork: locks of one rank, by who always takes them in the same order. Never borrowed. */
void hak_lock_acquire_sibling(struct hak_lock *lock);
void hak_lock_release_sibling(struct hak_lock *lock);
/* For fork, when it has taken all locks: to take and release one then means nothing but to wait for who borrows. */
void hak_lock_own_all(void); /* again, before a fork inside of this one: nothing is half changed when it returns */
void hak_lock_disown_all(void);
bool hak_lock_owns_all(void);
/* The process's number, where the calling thread forks, or borrows; else 0. It tells what a child's threads did, before
 * our own handler was run there, from what its parent's did. */
int hak_lock_forks_in(void);
/* Where the calling thread forks, or borrows: a new lock, taken as fork has taken the others of its kind. Else nothing,
 * and false. */
bool hak_lock_take_for_fork(struct hak_lock *lock);

#endif
