/* SPDX-License-Identifier: MIT */
#include "core/base/lock.h"

#include "unit.h"

TEST(locks_are_counted)
{
    static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_META);
    for (unsigned i = 0; i < 3; i++) {
        hak_lock_acquire(&lock);
        hak_lock_release(&lock);
    }
    assert_int_equal(lock.taken, 3);
}

static struct hak_lock low = HAK_LOCK_INIT(HAK_RANK_THREADS), high = HAK_LOCK_INIT(HAK_RANK_RANGE);

static void take_upside_down(void)
{
    hak_lock_acquire(&high);
    hak_lock_acquire(&low);
}

static void try_upside_down(void)
{
    hak_lock_acquire(&high);
    hak_lock_try(&low);
}

static void release_what_is_not_held(void)
{
    hak_lock_release(&low);
}

TEST(ranks_are_checked_in_debug_builds)
{
    unit_start(NULL);
    hak_lock_acquire(&low);
    hak_lock_acquire(&high);
    hak_lock_release(&high);
    hak_lock_release(&low);
#ifdef NDEBUG
    (void)take_upside_down;
    (void)try_upside_down;
    (void)release_what_is_not_held;
#else
    assert_dies(take_upside_down, "internal check failed");
    assert_dies(try_upside_down, "internal check failed");
    assert_dies(release_what_is_not_held, "internal check failed");
#endif
}

static void take_twice(void)
{
    hak_lock_acquire(&low);
    hak_lock_acquire(&low);
}

TEST(a_thread_does_not_wait_for_itself)
{
    unit_start(NULL);
    assert_false(hak_lock_is_any_held());
    hak_lock_acquire(&low);
    assert_true(hak_lock_is_any_held());
    hak_lock_release(&low);
    assert_false(hak_lock_is_any_held());
    assert_dies(take_twice, "the handler of a signal");
}

TEST(who_owns_all_locks_takes_none)
{
    hak_lock_acquire(&high);
    hak_lock_own_all(true);
    hak_lock_acquire(&low);
    hak_lock_acquire(&high);
    hak_lock_release(&high);
    hak_lock_release(&low);
    assert_true(hak_lock_is_any_held());
    hak_lock_own_all(false);
    assert_int_equal(pthread_mutex_trylock(&high.mutex), EBUSY);
    hak_lock_release(&high);
    assert_int_equal(pthread_mutex_trylock(&low.mutex), 0);
    pthread_mutex_unlock(&low.mutex);
}

TEST(many_of_one_rank_are_held_by_who_takes_them_in_order)
{
    static struct hak_lock other = HAK_LOCK_INIT(HAK_RANK_THREADS);
    hak_lock_acquire_sibling(&low);
    hak_lock_acquire_sibling(&other);
    assert_true(hak_lock_is_any_held());
    assert_int_equal(pthread_mutex_trylock(&other.mutex), EBUSY);
    hak_lock_release_sibling(&low);
    hak_lock_release_sibling(&other);
    assert_false(hak_lock_is_any_held());
    assert_int_equal(pthread_mutex_trylock(&other.mutex), 0);
}

UNIT_MAIN(T(many_of_one_rank_are_held_by_who_takes_them_in_order), T(locks_are_counted), T(ranks_are_checked_in_debug_builds), T(a_thread_does_not_wait_for_itself),
          T(who_owns_all_locks_takes_none))
