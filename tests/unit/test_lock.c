/* SPDX-License-Identifier: MIT */
#include "core/base/lock.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

static struct hak_lock low = HAK_LOCK_INIT(HAK_RANK_HEAPS), high = HAK_LOCK_INIT(HAK_RANK_RANGE);

static void take_upside_down(void)
{
    hak_lock_acquire(&high);
    hak_lock_acquire(&low);
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
#else
    assert_dies(take_upside_down, "internal check failed");
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

static void take_two_of_a_rank(void)
{
    static struct hak_lock other = HAK_LOCK_INIT(HAK_RANK_HEAPS);
    hak_lock_acquire(&low);
    hak_lock_acquire(&other);
}

TEST(two_locks_of_a_rank_are_not_a_signals_fault)
{
    unit_start(NULL);
    assert_dies(take_two_of_a_rank, "two locks of rank");
}

/* It does not wait for the lock. */
TEST(a_lock_may_be_tried_in_any_order)
{
    unit_start(NULL);
    hak_lock_acquire(&high);
    assert_true(hak_lock_try(&low));
    hak_lock_release(&low);
    hak_lock_release(&high);
    assert_false(hak_lock_is_any_held());
}

static bool is_taken(struct hak_lock *lock)
{
    return HAK_LOAD_RELAXED(&lock->word) != 0;
}

TEST(who_owns_all_locks_takes_none)
{
    hak_lock_acquire(&high);
    hak_lock_own_all();
    hak_lock_acquire(&low);
    hak_lock_acquire(&high);
    hak_lock_release(&high);
    hak_lock_release(&low);
    assert_true(hak_lock_is_any_held());
    hak_lock_disown_all();
    assert_true(is_taken(&high));
    hak_lock_release(&high);
    assert_false(is_taken(&low));
}

TEST(many_of_one_rank_are_held_by_who_takes_them_in_order)
{
    static struct hak_lock other = HAK_LOCK_INIT(HAK_RANK_HEAPS);
    hak_lock_acquire_sibling(&low);
    hak_lock_acquire_sibling(&other);
    assert_true(hak_lock_is_any_held());
    assert_true(is_taken(&other));
    hak_lock_release_sibling(&low);
    hak_lock_release_sibling(&other);
    assert_false(hak_lock_is_any_held());
    assert_false(is_taken(&other));
}

static void *try_in_vain(void *unused)
{
    assert_false(hak_lock_try(&low));
    assert_false(hak_lock_is_any_held());
    return unused;
}

TEST(who_tries_in_vain_holds_nothing)
{
    pthread_t t;
    hak_lock_acquire(&low);
    assert_int_equal(pthread_create(&t, NULL, try_in_vain, NULL), 0);
    pthread_join(t, NULL);
    hak_lock_release(&low);
}

static _Atomic(bool) waits;

static void *wait_and_tell(void *when)
{
    waits = true;
    hak_lock_acquire(&low);
    *(uint64_t *)when = hak_os->clock_ns();
    hak_lock_release(&low);
    return NULL;
}

/* Else it would look again after ten seconds. */
TEST(who_releases_a_lock_wakes_who_waits)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 100 && least > 50000000; i++) { /* a busy machine may take longer, though not each time */
        uint64_t got_ns, released_ns;
        pthread_t t;
        waits = false;
        hak_lock_acquire(&low);
        assert_int_equal(pthread_create(&t, NULL, wait_and_tell, &got_ns), 0);
        while (!waits)
            ;
        usleep(2000);
        released_ns = hak_os->clock_ns();
        hak_lock_release(&low);
        pthread_join(t, NULL);
        least = hak_min(least, got_ns - hak_min(got_ns, released_ns));
    }
    assert_in_range(least, 0, 50000000);
}

/* --- a fork ------------------------------------------------------------------------------------------------ */

#if !HAK_SANITIZED
/* The C library's fork would call the library's own handlers. */
static int status_of_child(void (*fn)(void))
{
    int status = 0;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        alarm(60);
        fn();
        _exit(0);
    }
    wait(&status);
    return pid < 0 ? -1 : status;
}

static void end_inner_fork(void)
{
    hak_lock_disown_all();
    hak_lock_release(&high);
    hak_lock_release(&low);
    hak_lock_release(&low); /* by the call that was interrupted */
    assert_false(hak_lock_is_any_held());
    assert_false(is_taken(&low) || is_taken(&high));
}

/* A handler of the first fork was in malloc, and a signal's handler forked there. */
TEST(a_child_of_an_interrupted_handler_has_no_lock)
{
    hak_lock_acquire(&low);
    hak_lock_acquire(&high);
    hak_lock_own_all();
    hak_lock_acquire(&low);
    assert_int_equal(status_of_child(end_inner_fork), 0);
    end_inner_fork();
}

static struct hak_lock purge_lock = HAK_LOCK_INIT(HAK_RANK_PURGE);
static pthread_barrier_t inside;

static void *enter_and_stay(void *unused)
{
    hak_lock_acquire(&purge_lock);
    hak_lock_acquire(&high);
    pthread_barrier_wait(&inside);
    pthread_barrier_wait(&inside);
    hak_lock_release(&high);
    hak_lock_release(&purge_lock);
    return unused;
}

static void lose_others(void)
{
    hak_lock_lose(&low);
    hak_lock_lose(&high);
    hak_lock_lose(&purge_lock);
}

static void go_on_with_own(void)
{
    lose_others();
    hak_lock_release(&low);
    assert_false(is_taken(&purge_lock));
    assert_false(hak_lock_try(&high));
    hak_lock_acquire(&low);
}

/* A signal's handler forked while its thread had `low` (the line is in test_fork.c). */
TEST(a_child_loses_the_locks_of_others)
{
    pthread_t t;
    pthread_barrier_init(&inside, NULL, 2);
    assert_int_equal(pthread_create(&t, NULL, enter_and_stay, NULL), 0);
    pthread_barrier_wait(&inside);
    hak_lock_acquire(&low);
    assert_int_equal(status_of_child(go_on_with_own), 0);
    hak_lock_release(&low);
    pthread_barrier_wait(&inside);
    pthread_join(t, NULL);
}

static HAK_LOCK(wanted, HAK_RANK_HEAPS);

static void nothing(void)
{
}

static void *take_all(void *unused)
{
    hak_lock_acquire_all(nothing);
    hak_lock_disown_all();
    hak_lock_release_all();
    return unused;
}

static void let_fork(void)
{
    hak_lock_lose_others();
    hak_lock_release(&wanted);
    hak_lock_let_fork();
}

/* Which waited for a lock of its parent's thread. */
TEST(a_child_waits_for_no_fork_of_its_parents)
{
    pthread_t t;
    hak_lock_acquire(&wanted);
    assert_int_equal(pthread_create(&t, NULL, take_all, NULL), 0);
    while (!hak_lock_is_fork_waiting())
        usleep(1000);
    usleep(1000);
    assert_int_equal(status_of_child(let_fork), 0);
    hak_lock_release(&wanted);
    pthread_join(t, NULL);
}

#endif

TEST(a_lock_that_is_made_while_the_thread_forks_is_taken)
{
    static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_CPU_HEAP);
    unit_start(NULL);
    assert_false(hak_lock_take_for_fork(&lock));
    assert_false(is_taken(&lock));
    hak_lock_own_all();
    assert_true(hak_lock_take_for_fork(&lock));
    hak_lock_disown_all();
    assert_true(is_taken(&lock));
}
