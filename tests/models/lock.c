/* SPDX-License-Identifier: MIT
 * Threads wait for a lock: they look at it again, and then sleep in the kernel (core/base/lock.c as it is). Each change
 * under the lock is a plain one, so one that is not ordered after the others is a race. */
#include "core/base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/log.h"
#include "world.h"

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_FRONTEND);
static int guarded;

static void change(void)
{
    hak_lock_acquire(&lock);
    guarded++;
    hak_lock_release(&lock);
}

/* --- the lock ---------------------------------------------------------------------------------------------- */

static void take_turns(unsigned self)
{
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

/* --- the kernel ------------------------------------------------------------------------------------------------ */

static void nothing(void)
{
}

/* A wait never times out: so a thread that is not woken is detected. */
long syscall(long number, ...)
{
    va_list args;
    va_start(args, number);
    const void *word = va_arg(args, const void *);
    int call = va_arg(args, int);
    unsigned value = va_arg(args, unsigned);
    va_end(args);
    MODEL_CHECK(number == SYS_futex);
    if ((call & FUTEX_CMD_MASK) == FUTEX_WAKE) {
        model_wake(word);
        return 0;
    }
    model_sleep(word, value, false);
    errno = EAGAIN;
    return -1;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    *t = (struct timespec){0};
    return 0;
}

const struct model models[] = {
    {"turns", 2, nothing, take_turns, expect_three, 0},
    {"try", 2, nothing, try_once, expect_some, 2},
    {0},
};
