/* SPDX-License-Identifier: MIT
 * Locks for models, in place of core/base/lock.c: that one sleeps in the kernel, and the checker would with it. These
 * are the checker's own, to which a lock is an address. */
#include "core/base/lock.h"

#include <pthread.h>

void hak_lock_acquire(struct hak_lock *lock)
{
    pthread_mutex_lock((pthread_mutex_t *)(void *)lock);
    HAK_STORE_RELAXED(&lock->taken, HAK_LOAD_RELAXED(&lock->taken) + 1);
}

void hak_lock_release(struct hak_lock *lock)
{
    pthread_mutex_unlock((pthread_mutex_t *)(void *)lock);
}
