/* SPDX-License-Identifier: MIT */
#include "core/base/lock.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static struct hak_lock low = HAK_LOCK_INIT(HAK_RANK_HEAPS), high = HAK_LOCK_INIT(HAK_RANK_RANGE);

static void take_both(struct hak_lock *first, struct hak_lock *second)
{
    hak_lock_acquire(first);
    hak_lock_acquire(second);
}

TEST(what_a_thread_may_take)
{
    static struct hak_lock same_rank = HAK_LOCK_INIT(HAK_RANK_HEAPS);
    unit_start(NULL);
    assert_false(hak_lock_is_any_held());
    hak_lock_acquire(&low);
    assert_true(hak_lock_is_any_held());
    hak_lock_acquire(&high);
    hak_lock_release(&low);
    assert_true(hak_lock_try(&low)); /* in any order, since it does not wait */
    hak_lock_release(&low);
    hak_lock_release(&high);
    assert_false(hak_lock_is_any_held());
    assert_int_equal(low.taken, 2);
    assert_dies(take_both(&low, &low), "the handler of a signal");
    assert_dies(take_both(&low, &same_rank), "two locks of rank");
#ifndef NDEBUG
    assert_dies(take_both(&high, &low), "internal check failed");
#endif
}

static bool is_taken(struct hak_lock *lock)
{
    return HAK_LOAD_RELAXED(&lock->word) != 0;
}

static void *try_in_vain(void *unused)
{
    assert_false(hak_lock_try(&low));
    assert_false(hak_lock_is_any_held());
    return unused;
}

TEST(a_thread_that_owns_all_locks_takes_none)
{
    static struct hak_lock made = HAK_LOCK_INIT(HAK_RANK_CPU_HEAP);
    hak_lock_acquire(&high);
    assert_false(hak_lock_take_for_fork(&made));
    hak_lock_own_all();
    hak_lock_acquire(&low);
    hak_lock_acquire(&high);
    hak_lock_release(&high);
    hak_lock_release(&low);
    assert_true(hak_lock_is_any_held());
    assert_true(hak_lock_take_for_fork(&made)); /* the thread makes this lock during the fork */
    hak_lock_disown_all();
    assert_true(is_taken(&made));
    assert_true(is_taken(&high));
    hak_lock_release(&high);
    assert_false(is_taken(&low));
}

TEST(a_thread_may_take_many_of_a_rank_in_order_and_a_vain_try_takes_none)
{
    static struct hak_lock other = HAK_LOCK_INIT(HAK_RANK_HEAPS);
    hak_lock_acquire_sibling(&low);
    hak_lock_acquire_sibling(&other);
    assert_true(hak_lock_is_any_held());
    assert_true(is_taken(&other));
    unit_join(unit_begin(try_in_vain, NULL));
    hak_lock_release_sibling(&low);
    hak_lock_release_sibling(&other);
    assert_false(hak_lock_is_any_held());
    assert_false(is_taken(&other));
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

/* A waiter that nobody wakes checks again only after ten seconds. */
TEST(who_releases_a_lock_wakes_who_waits)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 100 && least > 50000000; i++) { /* a busy machine may take longer, though not each time */
        uint64_t got_ns, released_ns;
        waits = false;
        hak_lock_acquire(&low);
        pthread_t t = unit_begin(wait_and_tell, &got_ns);
        while (!waits)
            ;
        usleep(2000);
        released_ns = hak_os->clock_ns();
        hak_lock_release(&low);
        unit_join(t);
        least = hak_min(least, got_ns - hak_min(got_ns, released_ns));
    }
    assert_in_range(least, 0, 50000000);
}

/* --- two threads whose storage lies a power of two apart ----------------------------------------------------- */

#if !HAK_SANITIZED
#define STACK (256 * HAK_KIB)

extern struct hak_lock *const __start_hak_locks[] HAK_HIDDEN, *const __stop_hak_locks[] HAK_HIDDEN;
static pthread_barrier_t turn;

static bool is_awaited(struct hak_lock *lock)
{
    return HAK_LOAD_RELAXED(&lock->word) & 1;
}

static void *hold_each(void *unused)
{
    for (struct hak_lock *const *lock = __start_hak_locks; lock < __stop_hak_locks; lock++) {
        hak_lock_acquire(*lock);
        pthread_barrier_wait(&turn);
        while (!is_awaited(*lock))
            usleep(20);
        hak_lock_release(*lock);
        pthread_barrier_wait(&turn);
    }
    return unused;
}

static void *await_each(void *unused)
{
    for (struct hak_lock *const *lock = __start_hak_locks; lock < __stop_hak_locks; lock++) {
        pthread_barrier_wait(&turn);
        assert_false(hak_lock_try(*lock));
        hak_lock_acquire(*lock);
        hak_lock_release(*lock);
        pthread_barrier_wait(&turn);
    }
    return unused;
}

static pthread_t begin_at(char *stack, void *(*fn)(void *))
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, fn, NULL), 0);
    pthread_attr_destroy(&attr);
    return thread;
}

static bool map_stack(char *at)
{
    return mmap(at, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at;
}

/* Other machines and Valgrind have fewer addresses. */
TEST(threads_at_each_distance_contend_for_each_lock)
{
    unsigned distances = 0;
    char *first = (char *)((uintptr_t)1 << 36);
    assert_true(map_stack(first));
    pthread_barrier_init(&turn, NULL, 2);
    for (unsigned lg = 20; lg <= 46 && map_stack(first + ((uintptr_t)1 << lg)); lg++, distances++) {
        pthread_t one = begin_at(first, hold_each), other = begin_at(first + ((uintptr_t)1 << lg), await_each);
        unit_join(one);
        unit_join(other);
        munmap(first + ((uintptr_t)1 << lg), STACK);
    }
    munmap(first, STACK);
    assert_in_range(distances, 15, 27);
}
#endif

/* --- a fork ------------------------------------------------------------------------------------------------ */

#if !HAK_SANITIZED
/* The C library's fork would call the library's own handlers. */
static int status_of_child(void (*fn)(void))
{
    int status = 0;
#ifdef SYS_fork /* the arguments of clone have another order on s390x */
    pid_t pid = (pid_t)syscall(SYS_fork);
#else
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
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

/* A fork handler called malloc; a signal interrupted that call, and its handler forked. */
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

/* A signal handler forks while its thread holds `low` (test_fork.c has the message). */
TEST(a_child_loses_the_locks_of_others)
{
    pthread_barrier_init(&inside, NULL, 2);
    pthread_t t = unit_begin(enter_and_stay, NULL);
    pthread_barrier_wait(&inside);
    hak_lock_acquire(&low);
    assert_int_equal(status_of_child(go_on_with_own), 0);
    hak_lock_release(&low);
    pthread_barrier_wait(&inside);
    unit_join(t);
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

/* A fork of the parent waits for a lock that the child's thread holds. */
TEST(a_child_waits_for_no_fork_of_its_parents)
{
    hak_lock_acquire(&wanted);
    pthread_t t = unit_begin(take_all, NULL);
    while (!hak_lock_is_fork_waiting())
        usleep(1000);
    usleep(1000);
    assert_int_equal(status_of_child(let_fork), 0);
    hak_lock_release(&wanted);
    unit_join(t);
}

#endif
