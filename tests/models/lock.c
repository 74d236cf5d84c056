/* SPDX-License-Identifier: MIT
 * Threads wait for a lock: they look at it again, and then sleep in the kernel (core/base/lock.c as it is). Each change
 * under the lock is a plain one, so one that is not ordered after the others is a race. */
#include "core/base/lock.h"

#include <linux/futex.h>

#include "core/base/kernel.h"
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
long hak_syscall(long number, long word, long call, long value, long d, long e, long f)
{
    (void)d, (void)e, (void)f;
    MODEL_CHECK(number == SYS_futex);
    if ((call & FUTEX_CMD_MASK) == FUTEX_WAKE) {
        model_wake((const void *)word);
        return 0;
    }
    model_sleep((const void *)word, (unsigned)value, false);
    return -EAGAIN;
}

uint64_t hak_kernel_clock(int clock)
{
    (void)clock;
    return 0;
}

const struct model models[] = {
    {"turns", 2, nothing, take_turns, expect_three, 0},
    {"try", 2, nothing, try_once, expect_some, 2},
    {0},
};
