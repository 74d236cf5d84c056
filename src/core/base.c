/* SPDX-License-Identifier: MIT
 * Checks that failed, and locks whose rank is checked in debug builds. */
#include "base.h"

#include <stdlib.h>

#include "log.h"

#ifndef NDEBUG
static __thread unsigned held; /* one bit for each rank */
#endif

void hak_check_failed(const char *what, const char *file, int line)
{
    hak_log_fatal("internal check failed: %s (%s:%d); please report it", what, file, line);
}

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
    uint64_t taken = atomic_load_explicit(&lock->taken, memory_order_relaxed);
    atomic_store_explicit(&lock->taken, taken + 1, memory_order_relaxed);
}

void hak_lock_release(struct hak_lock *lock)
{
#ifndef NDEBUG
    held &= ~(1u << lock->rank);
#endif
    pthread_mutex_unlock(&lock->mutex);
}
