/* SPDX-License-Identifier: MIT
 * HAKMEM_STATS_SIGNAL, and a handler that the program had before: what it is called with, and when the signal came
 * while a lock was held. */
#include "core/process/signal.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "unit.h"

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_HEAPS);
static volatile sig_atomic_t handled;
static siginfo_t seen;
static bool has_context;

static void on_signal(int number, siginfo_t *info, void *context)
{
    handled++;
    seen = *info;
    has_context = context;
    (void)number;
}

static void start(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    unit_init("HAKMEM_STATS_SIGNAL=10 HAKMEM_STATS_FILE=/dev/null");
}

static void send(int value)
{
    assert_int_equal(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = value}), 0);
}

static void assert_handled(int times, int value)
{
    assert_int_equal(handled, times);
    assert_int_equal(seen.si_signo, SIGUSR1);
    assert_int_equal(seen.si_value.sival_int, value);
    assert_int_equal(seen.si_pid, getpid());
    assert_true(has_context);
}

static int end_slow_path(void)
{
    hak_maintain();
    return handled || hak_signal_waiting;
}

static int take_signal_of_its_own(void)
{
    if (end_slow_path())
        return 1;
    hak_lock_acquire(&lock);
    send(7);
    hak_lock_release(&lock);
    hak_maintain();
    return handled != 1 || seen.si_value.sival_int != 7;
}

TEST(a_signal_that_came_to_a_lock_is_sent_again_as_it_was)
{
    start();
    send(41);
    assert_handled(1, 41);
    hak_lock_acquire(&lock);
    send(42);
    send(43); /* one that waits stands for both */
    assert_int_equal(handled, 1);
    hak_lock_release(&lock);
    hak_maintain();
    assert_handled(2, 42);
    hak_maintain_now();
    assert_int_equal(handled, 2);
}

static void *maintain(void *unused)
{
    hak_maintain();
    return unused;
}

/* The kernel allows only the first thread to send such a signal as it was. */
TEST(another_thread_sends_a_killers_signal_again)
{
    start();
    hak_lock_acquire(&lock);
    kill(getpid(), SIGUSR1);
    hak_lock_release(&lock);
    unit_in_thread(maintain, NULL);
    while (!handled)
        usleep(1000);
    assert_handled(1, seen.si_value.sival_int);
}

TEST(a_child_inherits_no_signal)
{
    start();
    hak_lock_acquire(&lock);
    send(42);
    hak_lock_release(&lock);
    unit_in_child(end_slow_path);
    unit_in_child(take_signal_of_its_own);
    assert_int_equal(handled, 0);
    hak_maintain();
    assert_handled(1, 42);
}
