/* SPDX-License-Identifier: MIT
 * The library's own thread: how often it purges, and in which processes it runs. */
#include "core/process/background.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unit.h"

static _Atomic(unsigned) purged;

static void purge(void)
{
    HAK_ADD_RELAXED(&purged, 1);
}

static void pass(unsigned ms)
{
    usleep(ms * 1000);
}

static bool refuses_sleep; /* set before the thread starts */

long __real_hak_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_hak_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_hak_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    return number == SYS_nanosleep && refuses_sleep ? -EPERM : __real_hak_syscall(number, a, b, c, d, e, f);
}

TEST(it_purges_after_each_half_of_the_delay)
{
    unit_init("HAKMEM_BACKGROUND=1 HAKMEM_PURGE_DELAY_MS=100");
    hak_background_start(purge);
    hak_background_start(purge); /* there is one already */
    while (HAK_LOAD_RELAXED(&purged) < 4)
        pass(50);
    assert_int_equal(unit_stat("background", "started"), 1);
    uint64_t began = hak_os->clock_ns(), rounds = unit_stat("background", "rounds");
    pass(500);
    uint64_t more = unit_stat("background", "rounds") - rounds;
    assert_in_range(more, 0, (hak_os->clock_ns() - began) / 50000000 + 2); /* it sleeps between rounds */
}

TEST(it_ends_where_it_may_not_sleep)
{
    if (HAK_SANITIZED) /* thread sanitizer wants a thread that ends to be joined */
        skip();
    unit_init("HAKMEM_BACKGROUND=1");
    refuses_sleep = true;
    hak_background_start(purge);
    poll(NULL, 0, 100);
    assert_int_equal(unit_stat("background", "started"), 1);
    assert_int_equal(unit_stat("background", "rounds"), 0);
}

static int start_in_child(void)
{
    HAK_STORE_RELAXED(&purged, 0);
    pass(100);
    if (HAK_LOAD_RELAXED(&purged))
        return 2;
    hak_background_start(purge);
    while (!HAK_LOAD_RELAXED(&purged))
        pass(20);
    return 0;
}

/* When the child requests one. */
TEST(a_child_starts_its_own)
{
    if (HAK_SANITIZED || getenv("UNIT_RUN_BY")) /* thread sanitizer and qemu-user die of a thread in a forked child */
        skip();
    unit_init("HAKMEM_BACKGROUND=1 HAKMEM_PURGE_DELAY_MS=20");
    hak_background_start(purge);
    unit_in_child(start_in_child);
}

/* If a thread of the child started one before the library's fork handler ran, that one stays. The parent's is not in
 * the child. */
TEST(a_child_starts_no_second_one)
{
    unit_init("HAKMEM_BACKGROUND=1");
    hak_background_start(purge);
    hak_background_fork_child(getpid() + 1);
    hak_background_start(purge);
    assert_int_equal(unit_stat("background", "started"), 1);
    hak_background_fork_child(getpid());
    hak_background_start(purge);
    assert_int_equal(unit_stat("background", "started"), 2);
}
