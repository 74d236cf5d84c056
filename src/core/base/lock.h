/* SPDX-License-Identifier: MIT
 * Locks with ranks. They are taken in ascending rank; a debug build checks it. HAK_LOCK enters a lock in a list, by which
 * fork takes them all in this order. A thread knows which locks it holds. One that asks for a lock of its own was
 * interrupted by a signal whose handler called malloc or free: the process stops with one line, rather than wait for
 * itself.
 *
 * While fork waits for a lock it has others, for which other threads wait. So a lock is held for one system call at the
 * longest; what takes several, and is held longer, has a rank before all that malloc needs (HAK_RANK_SWEEP) and lets go
 * when a fork waits, or is not taken by fork (HAK_RANK_PURGE).
 *
 * A thread that forks has all locks while other libraries' handlers run and the kernel copies the process. If such a
 * handler waits for a thread that waits for a lock of ours, both wait for ever (docs/limits.md). The thread that waits
 * says so after ten seconds. */
#ifndef HAK_LOCK_H
#define HAK_LOCK_H

#include "words.h"

enum hak_rank {
    HAK_RANK_FORK,  /* one fork at a time */
    HAK_RANK_SWEEP, /* slabs in hand on their way between lists; only tried by a thread that holds other locks */
    HAK_RANK_INIT,
    HAK_RANK_MAKING,   /* heaps of CPUs */
    HAK_RANK_CPU_HEAP, /* of many; only fork has more than one */
    HAK_RANK_ORPHAN,
    HAK_RANK_HEAPS,
    HAK_RANK_PURGE,          /* held while the kernel takes pages; not taken by fork, and free in a child */
    HAK_RANK_FRONTEND,       /* of each frontend; no thread holds those of two frontends at once */
    HAK_RANK_FRONTEND_INNER, /* one that a frontend takes while it holds its other one */
    HAK_RANK_BACKEND,
    HAK_RANK_BACKEND_INNER,
    HAK_RANK_PAGES,
    HAK_RANK_RANGE,
    HAK_RANK_META,
    HAK_RANK_GUARD,
    HAK_NRANKS
};

struct hak_lock {
    _Atomic(unsigned) word; /* 0 when free; else whose it is */
    unsigned rank;
    _Atomic(uint64_t) taken; /* how often; read by the statistics */
};

/* Of a lock that HAK_LOCK does not define. Fork does not know it. */
#define HAK_LOCK_INIT(r) {0, (r), 0}

/* The linker gathers what is in a section of this name, and marks its ends. */
#if __has_attribute(retain)
#define HAK_LOCK_ENTRY __attribute__((section("hak_locks"), used, retain))
#else
#define HAK_LOCK_ENTRY __attribute__((section("hak_locks"), used))
#endif
/* `static HAK_LOCK(name, rank);` defines a lock. Fork takes it, and both sides release it. */
#define HAK_LOCK(name, rank)                   \
    struct hak_lock name = HAK_LOCK_INIT(rank); \
    static struct hak_lock *const name##_entry HAK_LOCK_ENTRY = &name

void hak_lock_acquire(struct hak_lock *lock);
/* False, and nothing is taken, where another thread holds it. It does not wait, so the order of ranks does not matter. */
bool hak_lock_try(struct hak_lock *lock);
void hak_lock_release(struct hak_lock *lock);
/* Whether this thread holds a lock. */
bool hak_lock_is_any_held(void);
/* By fork: locks of one rank, which it always takes in the same order. */
void hak_lock_acquire_sibling(struct hak_lock *lock);
void hak_lock_release_sibling(struct hak_lock *lock);
/* By fork: all that HAK_LOCK defined, and, in their turn, those of rank HAK_RANK_CPU_HEAP by the function. Then it owns
 * all. The locks are released after hak_lock_disown_all. */
void hak_lock_acquire_all(void (*acquire_cpu_heaps)(void));
void hak_lock_release_all(void);
/* In a child: locks of threads that are not there. Those of rank HAK_RANK_PURGE are free, since no thread takes one
 * during a fork. Others stay locked if fork was called inside of malloc: a thread that needs one stops the process with
 * a line. */
void hak_lock_lose(struct hak_lock *lock);
void hak_lock_lose_others(void); /* of all that HAK_LOCK defined */
/* A thread forks; in a child, until our own handler is run. */
bool hak_lock_is_forking(void);
/* A fork waits for locks: work of many steps ends with this one. */
bool hak_lock_is_fork_waiting(void);
/* Until none does. The caller holds no lock. */
void hak_lock_let_fork(void);
/* For fork, when it has taken all locks: the thread takes and releases none until it disowns them. */
void hak_lock_own_all(void);
void hak_lock_disown_all(void);
bool hak_lock_owns_all(void);
/* Where the calling thread owns all: a new lock, taken as fork has taken the others of its kind. Else nothing, and false. */
bool hak_lock_take_for_fork(struct hak_lock *lock);

#endif
