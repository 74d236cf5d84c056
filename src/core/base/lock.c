/* SPDX-License-Identifier: MIT
 * See lock.h. */
#include "lock.h"

#include "log.h"

/* One bit for each rank. A signal may come at any time: set before the lock is taken, cleared after it is released. */
static HAK_THREAD_LOCAL unsigned held;
static HAK_THREAD_LOCAL bool owns_all;

static bool is_held(const struct hak_lock *lock)
{
    return held >> lock->rank & 1;
}

static void check_rank(const struct hak_lock *lock)
{
    if (HAK_UNLIKELY(is_held(lock)))
        hak_log_fatal("malloc or free was called by the handler of a signal that came inside of malloc or free");
    HAK_ASSERT(held >> lock->rank == 0);
}

/* Written under the lock only; atomic because the statistics read it without. */
static void note_taken(struct hak_lock *lock)
{
    HAK_STORE_RELAXED(&lock->taken, HAK_LOAD_RELAXED(&lock->taken) + 1);
}

void hak_lock_acquire(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all))
        return;
    check_rank(lock);
    held |= 1u << lock->rank;
    pthread_mutex_lock(&lock->mutex);
    note_taken(lock);
}

bool hak_lock_try(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all))
        return true;
    check_rank(lock);
    held |= 1u << lock->rank;
    if (pthread_mutex_trylock(&lock->mutex)) {
        held &= ~(1u << lock->rank);
        return false;
    }
    note_taken(lock);
    return true;
}

void hak_lock_release(struct hak_lock *lock)
{
    if (HAK_UNLIKELY(owns_all))
        return;
    HAK_ASSERT(is_held(lock));
    pthread_mutex_unlock(&lock->mutex);
    held &= ~(1u << lock->rank);
}

void hak_lock_acquire_sibling(struct hak_lock *lock)
{
    HAK_ASSERT(held >> lock->rank <= 1);
    held |= 1u << lock->rank;
    pthread_mutex_lock(&lock->mutex);
    note_taken(lock);
}

void hak_lock_release_sibling(struct hak_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
    held &= ~(1u << lock->rank);
}

bool hak_lock_is_any_held(void)
{
    return held != 0;
}

void hak_lock_own_all(bool own)
{
    owns_all = own;
}

bool hak_lock_owns_all(void)
{
    return owns_all;
}
