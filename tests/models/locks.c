/* SPDX-License-Identifier: MIT
 * Locks as the checker has them, each known by its address, in place of core/base/lock.c, whose waiting threads sleep
 * in the kernel. */
#include <pthread.h>

#include "core/base/lock.h"

void hak_lock_acquire(struct hak_lock *lock)
{
    pthread_mutex_lock((pthread_mutex_t *)(void *)lock);
}

void hak_lock_release(struct hak_lock *lock)
{
    pthread_mutex_unlock((pthread_mutex_t *)(void *)lock);
}

bool hak_lock_try(struct hak_lock *lock)
{
    return !pthread_mutex_trylock((pthread_mutex_t *)(void *)lock);
}

bool hak_lock_is_fork_waiting(void)
{
    return false;
}
