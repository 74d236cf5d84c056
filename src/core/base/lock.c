/* SPDX-License-Identifier: MIT
 * See lock.h. */
#include "lock.h"

#include "log.h"

#ifndef NDEBUG
static __thread unsigned held; /* one bit for each rank */
#endif

void hak_lock_acquire(struct hak_lock *lock)
{
#ifndef NDEBUG
    HAK_CHECK(held >> lock->rank == 0);
#endif
    pthread_mutex_lock(&lock->mutex);
#ifndef NDEBUG
    held |= 1u << lock->rank;
#endif
    /* Written under the lock only; atomic because the statistics read it without. */
    HAK_STORE_RELAXED(&lock->taken, HAK_LOAD_RELAXED(&lock->taken) + 1);
}

void hak_lock_release(struct hak_lock *lock)
{
#ifndef NDEBUG
    held &= ~(1u << lock->rank);
#endif
    pthread_mutex_unlock(&lock->mutex);
}
