/* SPDX-License-Identifier: MIT
 * Threads wait for a lock in the kernel, and borrow the locks of a thread that forks and sleeps (core/base/lock.c as it
 * is). Each change under the lock is a plain one, so one that is not ordered after the others is a race. */
#include "core/base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/identity.h"
#include "core/base/log.h"
#include "world.h"

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_FRONTEND);
static pthread_mutex_t foreign = PTHREAD_MUTEX_INITIALIZER; /* of a library with handlers of fork */
static int guarded;
static bool patient; /* a wait takes as long as it takes: who is not woken is found */
static HAK_THREAD_LOCAL unsigned thread;

static void change(void)
{
    hak_lock_acquire(&lock);
    guarded++;
    hak_lock_release(&lock);
}

/* --- the lock ---------------------------------------------------------------------------------------------- */

static void take_turns(unsigned self)
{
    thread = self;
    change();
    if (self == 0)
        change();
}

static void expect_three(void)
{
    MODEL_CHECK(guarded == 3);
}

static void try_once(unsigned self)
{
    thread = self;
    if (self == 0) {
        change();
    } else if (hak_lock_try(&lock)) {
        guarded++;
        hak_lock_release(&lock);
        model_reached(0);
    } else {
        model_reached(1);
    }
}

static void expect_some(void)
{
    MODEL_CHECK(guarded == 1 || guarded == 2);
}

/* --- a fork, with a handler that waits ----------------------------------------------------------------------- */

static void change_in_foreign(void)
{
    pthread_mutex_lock(&foreign);
    change();
    pthread_mutex_unlock(&foreign);
}

static void fork_and_change(void)
{
    hak_lock_acquire(&lock);
    guarded++;
    hak_lock_own_all();
    change_in_foreign();
    hak_lock_disown_all();
    guarded++;
    hak_lock_release(&lock);
}

static void fork_beside(unsigned self)
{
    thread = self;
    if (self == 0)
        fork_and_change();
    else
        change_in_foreign();
}

static void expect_four(void)
{
    MODEL_CHECK(guarded == 4);
}

static void pass_foreign(void)
{
    pthread_mutex_lock(&foreign);
    pthread_mutex_unlock(&foreign);
}

/* Who borrows may still be at it when the handler goes on; and who sleeps after its fork lends nothing. */
static void fork_and_sleep(void)
{
    static const unsigned never;
    hak_lock_acquire(&lock);
    hak_lock_own_all();
    pass_foreign();
    hak_lock_disown_all();
    guarded++;
    hak_lock_release(&lock);
    model_sleep(&never, 0, true);
    change();
}

static void sleep_beside(unsigned self)
{
    thread = self;
    if (self == 0)
        fork_and_sleep();
    else if (self == 1)
        pass_foreign();
    else
        change();
}

/* --- the child of a fork, whose handlers start threads ------------------------------------------------------- */

enum { PARENT = 1, CHILD = PARENT + MODEL_THREADS }; /* numbers of processes, and of their first threads */

static bool copied; /* thread 0 is the child's first, and the others begin there */
static _Atomic(bool) amid; /* a change */
static _Atomic(unsigned) born, rung; /* bells, each for one who listens */

static void ring(_Atomic(unsigned) *bell)
{
    HAK_STORE_RELEASE(bell, 1);
    model_wake(bell);
}

static void listen(_Atomic(unsigned) *bell)
{
    while (!HAK_EXCHANGE_ACQUIRE(bell, 0))
        model_sleep(bell, 0, false);
}

static void end_fork_as_child(void)
{
    hak_lock_acquire(&lock);
    guarded++;
    hak_lock_own_all();
    copied = true;
    ring(&born);
    listen(&rung);
    change();
    hak_lock_disown_all();
    guarded++;
    hak_lock_release(&lock);
}

/* The handler waits for the thread. */
static void start_in_child(unsigned self)
{
    thread = self;
    if (self == 0) {
        end_fork_as_child();
    } else {
        listen(&born);
        change();
        ring(&rung);
    }
}

/* Its handler forks, and nothing may be half changed then. */
static void fork_in_child(unsigned self)
{
    thread = self;
    if (self != 0) {
        listen(&born);
        hak_lock_acquire(&lock);
        HAK_STORE_RELAXED(&amid, true);
        guarded++;
        HAK_STORE_RELAXED(&amid, false);
        hak_lock_release(&lock);
        return;
    }
    hak_lock_acquire(&lock);
    hak_lock_own_all();
    copied = true;
    ring(&born);
    hak_lock_own_all();
    MODEL_CHECK(!HAK_LOAD_RELAXED(&amid));
    hak_lock_disown_all();
    guarded++;
    hak_lock_release(&lock);
}

static void expect_two(void)
{
    MODEL_CHECK(guarded == 2);
}

/* --- the kernel ------------------------------------------------------------------------------------------------ */

static void nothing(void)
{
}

static void be_patient(void)
{
    patient = true;
}

static long futex(const void *word, int call, unsigned value, const struct timespec *until)
{
    if ((call & FUTEX_CMD_MASK) == FUTEX_WAKE) {
        model_wake(word);
        return 0;
    }
    errno = model_sleep(word, value, until && !patient) ? ETIMEDOUT : EAGAIN;
    return -1;
}

pid_t getpid(void)
{
    return copied ? CHILD : PARENT;
}

unsigned hak_identity(void)
{
    return (unsigned)getpid();
}

long syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    const void *word = number == SYS_futex ? va_arg(args, const void *) : NULL;
    int call = number == SYS_futex ? va_arg(args, int) : 0;
    unsigned value = number == SYS_futex ? va_arg(args, unsigned) : 0;
    const struct timespec *until = number == SYS_futex ? va_arg(args, const struct timespec *) : NULL;
    va_end(args);
    MODEL_CHECK(number == SYS_futex || number == SYS_gettid);
    return number == SYS_futex ? futex(word, call, value, until) : getpid() + (long)thread;
}

/* No thread's time is known. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    *t = (struct timespec){0};
    return clock == CLOCK_MONOTONIC ? 0 : -1;
}

void hak_text_format(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out, size, format, args);
    va_end(args);
}

/* /proc/self/task/ID/stat */
bool hak_file_read(const char *path, char *text, size_t size)
{
    unsigned id = 0;
    MODEL_CHECK(sscanf(path, "/proc/self/task/%u/stat", &id) == 1);
    bool waits = model_is_waiting(id - (unsigned)getpid());
    model_reached(waits);
    snprintf(text, size, "%u (model) %c", id, waits ? 'S' : 'R');
    return true;
}

const struct model models[] = {
    {"turns", 2, be_patient, take_turns, expect_three, 0},
    {"try", 2, be_patient, try_once, expect_some, 2},
    {"fork", 2, nothing, fork_beside, expect_four, 2},
    {"fork_and_sleep", 3, nothing, sleep_beside, expect_three, 2},
    {"child", 2, nothing, start_in_child, expect_four, 0},
    {"fork_in_child", 2, nothing, fork_in_child, expect_two, 2},
    {0},
};
