/* SPDX-License-Identifier: MIT */
#include "core/base/lock.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/identity.h"
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
    (void)release_what_is_not_held;
#else
    assert_dies(take_upside_down, "internal check failed");
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

static void take_two_of_a_rank(void)
{
    static struct hak_lock other = HAK_LOCK_INIT(HAK_RANK_THREADS);
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
    static struct hak_lock other = HAK_LOCK_INIT(HAK_RANK_THREADS);
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

/* Else it would look again after a tenth of a second. */
TEST(who_releases_a_lock_wakes_who_waits)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 8; i++) {
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

/* --- a fork whose handlers wait for another thread ------------------------------------------------------- */

static unsigned entered; /* guarded by the locks */
static _Atomic(bool) left; /* somebody has, since */

static void own_all(void)
{
    hak_lock_acquire(&low);
    hak_lock_acquire(&high);
    hak_lock_own_all();
}

static void disown_all(void)
{
    hak_lock_disown_all();
    hak_lock_release(&high);
    hak_lock_release(&low);
}

static pthread_t start(void *(*fn)(void *))
{
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, fn, NULL), 0);
    return t;
}

static void *enter(void *unused)
{
    static struct hak_lock lowest = HAK_LOCK_INIT(HAK_RANK_SWEEP);
    hak_lock_acquire(&low);
    assert_true(hak_lock_try(&high));
    assert_true(hak_lock_try(&lowest));
    hak_lock_release(&lowest);
    entered++;
    hak_lock_release(&high);
    assert_true(hak_lock_is_any_held());
    hak_lock_release(&low);
    assert_false(hak_lock_is_any_held());
    assert_int_equal(hak_lock_forks_in(), 0);
    HAK_STORE_RELAXED(&left, true);
    return unused;
}

TEST(a_forking_thread_that_sleeps_lends_its_locks)
{
    own_all();
    pthread_t t[] = {start(enter), start(enter), start(enter)};
    for (unsigned i = 0; i < COUNT(t); i++)
        pthread_join(t[i], NULL);
    hak_lock_acquire(&low); /* as a handler that allocates */
    assert_int_equal(entered, COUNT(t));
    hak_lock_release(&low);
    disown_all();
    assert_false(is_taken(&low) || is_taken(&high));
    enter(NULL);
    assert_int_equal(entered, COUNT(t) + 1);
}


static void do_nothing(int signal)
{
    (void)signal;
}

/* Two seconds long, at most. */
static void *interrupt_often(void *thread)
{
    for (unsigned i = 0; i < 400 && !HAK_LOAD_RELAXED(&left); i++) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        usleep(5000);
    }
    return NULL;
}

/* Else a timer's signals would begin its patience again and again. */
TEST(signals_do_not_keep_a_thread_from_borrowing)
{
    struct sigaction action = {.sa_handler = do_nothing};
    sigaction(SIGUSR1, &action, NULL);
    own_all();
    pthread_t t = start(enter), storm;
    assert_int_equal(pthread_create(&storm, NULL, interrupt_often, &t), 0);
    pthread_join(storm, NULL);
    assert_true(HAK_LOAD_RELAXED(&left));
    disown_all();
    pthread_join(t, NULL);
}

static _Atomic(bool) may_leave;

static void *enter_for_long(void *unused)
{
    hak_lock_acquire(&low);
    while (!HAK_LOAD_ACQUIRE(&may_leave))
        usleep(1000);
    hak_lock_release(&low);
    return unused;
}

/* Who was woken wakes the next. */
TEST(all_who_wait_for_the_loan_get_it)
{
    entered = 0;
    HAK_STORE_RELEASE(&may_leave, false);
    own_all();
    pthread_t first = start(enter_for_long);
    usleep(200000);
    pthread_t t[] = {start(enter), start(enter), start(enter)};
    usleep(300000);
    HAK_STORE_RELEASE(&may_leave, true);
    alarm(10);
    pthread_join(first, NULL);
    for (unsigned i = 0; i < COUNT(t); i++)
        pthread_join(t[i], NULL);
    alarm(0);
    disown_all();
    assert_int_equal(entered, COUNT(t));
}

static unsigned within;

static void *enter_twice(void *unused)
{
    for (unsigned i = 0; i < 20; i++) {
        hak_lock_acquire(&low);
        hak_lock_acquire(&high);
        hak_lock_release(&high);
        assert_int_equal((*(volatile unsigned *)&within)++, 0);
        usleep(1000);
        assert_int_equal(--(*(volatile unsigned *)&within), 0);
        hak_lock_release(&low);
    }
    return unused;
}

TEST(who_leaves_an_inner_lock_keeps_the_loan)
{
    own_all();
    pthread_t t[] = {start(enter_twice), start(enter_twice)};
    for (unsigned i = 0; i < COUNT(t); i++)
        pthread_join(t[i], NULL);
    disown_all();
}

static void run_for_long(void)
{
    uint64_t begin = hak_os->clock_ns();
    while (hak_os->clock_ns() - begin < 350000000)
        ;
}

/* It may be about to copy the process. */
TEST(who_waited_for_the_loan_looks_again)
{
    entered = 0;
    own_all();
    pthread_t first = start(enter_for_long);
    usleep(200000);
    pthread_t second = start(enter);
    usleep(200000);
    HAK_STORE_RELEASE(&may_leave, true);
    run_for_long();
    assert_int_equal(*(volatile unsigned *)&entered, 0);
    disown_all();
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    assert_int_equal(entered, 1);
}

/* A large process is copied for longer than a thread waits until it borrows. */
TEST(nobody_borrows_from_who_runs)
{
    entered = 0;
    own_all();
    pthread_t t = start(enter);
    run_for_long();
    assert_int_equal(*(volatile unsigned *)&entered, 0);
    disown_all();
    pthread_join(t, NULL);
    assert_int_equal(entered, 1);
}

#if !HAK_SANITIZED
/* The C library's fork would call the library's own handlers. */
static int copy_flags;

static pid_t copy_process(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD | copy_flags, 0, 0, 0, 0);
}

/* How it ends; -1 if it may not begin. */
static int run_in_child(void (*fn)(void))
{
    int status = 0;
    pid_t pid = copy_process();
    if (pid == 0) {
        alarm(10);
        fn();
        _exit(0);
    }
    wait(&status);
    return pid < 0 ? -1 : status;
}

static pthread_barrier_t inside;

static void *enter_and_stay(void *unused)
{
    hak_lock_acquire(&low);
    pthread_barrier_wait(&inside);
    pthread_barrier_wait(&inside);
    return unused;
}

/* As a child whose parent's other thread had borrowed. */
static void copy_amid_a_change(void (*in_child)(void))
{
    pthread_barrier_init(&inside, NULL, 2);
    own_all();
    start(enter_and_stay);
    pthread_barrier_wait(&inside);
    int status = run_in_child(in_child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
        abort();
}

static void end_fork_amid(void)
{
    copy_amid_a_change(disown_all);
}

/* As a handler of another library does in the child, before the library's own ends the fork. */
static void acquire_low(void)
{
    hak_lock_acquire(&low);
}

static void allocate_amid(void)
{
    copy_amid_a_change(acquire_low);
}

TEST(a_child_that_was_copied_amid_a_change_stops)
{
    assert_dies(end_fork_amid, "a handler of pthread_atfork slept for long");
    assert_dies(allocate_amid, "a handler of pthread_atfork slept for long");
}

/* As such a handler, which starts threads, and waits for one before it calls us itself. */
static void start_threads(void)
{
    pthread_t t[] = {start(enter), start(enter)};
    for (unsigned i = 0; i < COUNT(t); i++)
        pthread_join(t[i], NULL);
    hak_lock_acquire(&low);
    assert_int_equal(entered, COUNT(t));
    assert_int_equal(hak_lock_forks_in(), hak_identity());
    hak_lock_release(&low);
    pthread_t last = start(enter);
    disown_all();
    pthread_join(last, NULL);
    assert_int_equal(entered, COUNT(t) + 1);
    assert_int_equal(hak_lock_forks_in(), 0);
}

TEST(a_childs_threads_borrow)
{
    own_all();
    assert_int_equal(run_in_child(start_threads), 0);
    disown_all();
}

static void end_inner_fork(void)
{
    disown_all();
    assert_false(is_taken(&low) || is_taken(&high));
    hak_lock_release(&low); /* by the call that was interrupted */
    assert_int_equal(hak_lock_forks_in(), 0);
    assert_false(hak_lock_is_any_held());
    enter(NULL);
    assert_false(is_taken(&low) || is_taken(&high));
}

/* A handler of the first fork was in malloc, and a signal's handler forked there. */
TEST(a_child_of_an_interrupted_handler_has_no_lock)
{
    own_all();
    hak_lock_acquire(&low);
    hak_lock_own_all();
    assert_int_equal(run_in_child(end_inner_fork), 0);
    hak_lock_release(&low);
    disown_all();
    assert_false(is_taken(&low) || is_taken(&high));
}

/* A change that is over by then is whole in the child. */
TEST(a_child_that_was_copied_after_a_change_goes_on)
{
    own_all();
    pthread_join(start(enter), NULL);
    entered = 0;
    assert_int_equal(run_in_child(start_threads), 0);
    disown_all();
}
/* The child's first thread does not sleep, as its parent's may not while it forks. */
static void let_another_enter(void)
{
    uint64_t begin = hak_os->clock_ns();
    HAK_STORE_RELAXED(&left, false);
    start(enter);
    while (!HAK_LOAD_RELAXED(&left))
        if (hak_os->clock_ns() - begin > 3000000000)
            _exit(1);
}

static void fork_as_first(void)
{
    own_all();
    _exit(getpid() != 1 || run_in_child(let_another_enter));
}

TEST(a_child_of_the_same_number_is_another)
{
    copy_flags = CLONE_NEWPID;
    int status = run_in_child(fork_as_first);
    copy_flags = 0;
    if (status < 0)
        skip();
    assert_int_equal(status, 0);
}

#define IN_CHILD \
    , T(a_child_that_was_copied_amid_a_change_stops), T(a_childs_threads_borrow), \
        T(a_child_that_was_copied_after_a_change_goes_on), T(a_child_of_an_interrupted_handler_has_no_lock), \
        T(a_child_of_the_same_number_is_another)
#else
#define IN_CHILD
#endif

TEST(a_lock_that_is_made_while_the_thread_forks_is_taken)
{
    static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_PROCESSOR);
    unit_start(NULL);
    assert_false(hak_lock_take_for_fork(&lock));
    assert_false(is_taken(&lock));
    hak_lock_own_all();
    assert_true(hak_lock_take_for_fork(&lock));
    hak_lock_disown_all();
    assert_true(is_taken(&lock));
}

UNIT_MAIN(T(locks_are_counted), T(two_locks_of_a_rank_are_not_a_signals_fault), T(a_lock_may_be_tried_in_any_order),
          T(ranks_are_checked_in_debug_builds), T(a_thread_does_not_wait_for_itself),
          T(who_owns_all_locks_takes_none), T(many_of_one_rank_are_held_by_who_takes_them_in_order),
          T(a_lock_that_is_made_while_the_thread_forks_is_taken), T(who_releases_a_lock_wakes_who_waits),
          T(a_forking_thread_that_sleeps_lends_its_locks), T(nobody_borrows_from_who_runs),
          T(who_waited_for_the_loan_looks_again), T(all_who_wait_for_the_loan_get_it),
          T(who_leaves_an_inner_lock_keeps_the_loan), T(signals_do_not_keep_a_thread_from_borrowing),
          T(who_tries_in_vain_holds_nothing) IN_CHILD)
