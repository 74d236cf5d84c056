/* SPDX-License-Identifier: MIT
 * Locks with ranks. They are taken in ascending rank; a debug build checks it. HAK_LOCK enters a lock in a list, by
 * which fork takes them all in this order. A thread knows which locks it holds. If it tries to acquire one of them, a
 * signal handler has interrupted it and called malloc or free: the process stops with one line instead of waiting for
 * itself.
 *
 * While fork waits for one lock it holds others, for which other threads wait. So a lock is held for at most one system
 * call. A lock that is held longer has either a rank before all locks that malloc needs, and is released when a fork
 * waits (HAK_RANK_SWEEP), or is not taken by fork (HAK_RANK_PURGE).
 *
 * A thread that forks holds all locks while other libraries' handlers run and the kernel copies the process. If such a
 * handler waits for a thread that waits for a lock of ours, both wait forever (docs/limits.md). The thread that waits
 * for our lock reports it after ten seconds. */
#ifndef HAK_LOCK_H
#define HAK_LOCK_H

#include "words.h"

enum hak_rank {
    HAK_RANK_FORK,  /* one fork at a time */
    HAK_RANK_SWEEP, /* slabs being moved between lists; a thread that holds other locks only tries it */
    HAK_RANK_INIT,
    HAK_RANK_MAKING,   /* heaps of CPUs */
    HAK_RANK_CPU_HEAP, /* one for each CPU; only fork holds more than one */
    HAK_RANK_ORPHAN,
    HAK_RANK_HEAPS,
    HAK_RANK_ARENAS,         /* the list of arenas; what a hard limit calls */
    HAK_RANK_ARENA,          /* some arenas each; no thread holds two of them */
    HAK_RANK_PURGE,          /* held during purges; not taken by fork, and free in a child */
    HAK_RANK_FRONTEND,       /* one for each frontend; no thread holds two of them */
    HAK_RANK_FRONTEND_INNER, /* a frontend's second lock, taken while it holds the first */
    HAK_RANK_BACKEND,
    HAK_RANK_BACKEND_INNER,
    HAK_RANK_RUNS, /* runs on their way from the run cache to the page heap */
    HAK_RANK_PAGES,
    HAK_RANK_RANGE,
    HAK_RANK_META,
    HAK_RANK_CLOSED,
    HAK_RANK_GUARD,
    HAK_NRANKS
};

struct hak_lock {
    _Atomic(uint64_t) word;  /* 0 when free; else identifies the owner */
    _Atomic(uint64_t) taken; /* number of acquisitions; read by the statistics */
    unsigned rank;
};

/* Initialises a lock that HAK_LOCK does not define. Fork does not know it. */
#define HAK_LOCK_INIT(r) \
    {                    \
        0, 0, (r)        \
    }

/* The linker collects the entries of this section, and defines symbols for its ends. */
#if __has_attribute(retain)
#define HAK_LOCK_ENTRY __attribute__((section("hak_locks"), used, retain))
#else
#define HAK_LOCK_ENTRY __attribute__((section("hak_locks"), used))
#endif
/* `static HAK_LOCK(name, rank);` defines a lock. Fork takes it, and both sides release it. */
#define HAK_LOCK(name, rank)                    \
    struct hak_lock name = HAK_LOCK_INIT(rank); \
    static struct hak_lock *const name##_entry HAK_LOCK_ENTRY = &name

void hak_lock_acquire(struct hak_lock *lock);
/* False, without acquiring it, if another thread holds it. It does not wait, so the order of ranks does not matter. */
bool hak_lock_try(struct hak_lock *lock);

void hak_lock_release(struct hak_lock *lock);
/* This thread's state, which is zero while it holds no lock. */
const void *hak_lock_self(size_t *size);
/* Whether this thread holds a lock. */
bool hak_lock_is_any_held(void);
/* For fork: locks of one rank, which it always takes in the same order. */
void hak_lock_acquire_sibling(struct hak_lock *lock);
void hak_lock_release_sibling(struct hak_lock *lock);
/* For fork: acquires all locks that HAK_LOCK defined, and calls the function for those of rank HAK_RANK_CPU_HEAP at
 * their place in the order. Then the thread owns all locks. It calls hak_lock_disown_all before it releases them. */
void hak_lock_acquire_all(void (*acquire_cpu_heaps)(void));
void hak_lock_release_all(void);
/* In a child: handles the lock of a thread that does not exist there. A lock of rank HAK_RANK_PURGE becomes free, since
 * no thread takes one during a fork. Others stay locked if fork was called inside of malloc: a thread that needs one
 * stops the process with a line. */
void hak_lock_lose(struct hak_lock *lock);
void hak_lock_lose_others(void); /* of all that HAK_LOCK defined */
/* Whether a thread forks; in a child, true until our own handler has run. */
bool hak_lock_is_forking(void);
/* Whether a fork waits for locks: then work in many steps stops after the current one. */
bool hak_lock_is_fork_waiting(void);
/* Waits until no fork waits for locks. The caller holds no lock. */
void hak_lock_let_fork(void);
/* For fork, after it has acquired all locks: until the thread disowns them, it acquires and releases none. */
void hak_lock_own_all(void);
void hak_lock_disown_all(void);
bool hak_lock_owns_all(void);
/* If the calling thread owns all locks: marks a new lock as acquired, like the others of its kind. Else does nothing
 * and returns false. */
bool hak_lock_take_for_fork(struct hak_lock *lock);

#endif
