/* SPDX-License-Identifier: MIT
 * The library's own thread: how often it purges, and in which processes it runs. */
#include "core/process/background.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unit.h"

static _Atomic(unsigned) purged;

static bool purge(void)
{
    HAK_ADD_RELAXED(&purged, 1);
    return true;
}

static bool purge_the_rest(void)
{
    return purge() && false;
}

static void start(const char *settings)
{
    if (!HAK_OWN_THREADS)
        skip();
    unit_init(settings);
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
    start("HAKMEM_BACKGROUND=1 HAKMEM_PURGE_DELAY_MS=100");
    hak_background_start(purge);
    hak_background_start(purge); /* there is one already */
    while (HAK_LOAD_RELAXED(&purged) < 4)
        pass(50);
    assert_int_equal(unit_stat("background", "started"), 1);
    uint64_t began = hak_os_linux.clock_ns(), rounds = unit_stat("background", "rounds");
    pass(500);
    uint64_t more = unit_stat("background", "rounds") - rounds;
    assert_in_range(more, 0, (hak_os_linux.clock_ns() - began) / 50000000 + 2); /* it sleeps between rounds */
}

TEST(it_ends_where_it_may_not_sleep)
{
    start("HAKMEM_BACKGROUND=1");
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
    if (getenv("UNIT_RUN_BY")) /* qemu-user dies of a thread in a forked child */
        skip();
    start("HAKMEM_BACKGROUND=1 HAKMEM_PURGE_DELAY_MS=20");
    hak_background_start(purge);
    unit_in_child(start_in_child);
}

/* If a thread of the child started one before the library's fork handler ran, that one stays. */
TEST(a_child_starts_no_second_one)
{
    start("HAKMEM_BACKGROUND=1");
    hak_background_start(purge);
    hak_background_fork_child(getpid() + 1);
    hak_background_start(purge);
    assert_int_equal(unit_stat("background", "started"), 1);
}

TEST(it_ends_when_all_is_purged_and_starts_again)
{
    start("HAKMEM_BACKGROUND=1 HAKMEM_PURGE_DELAY_MS=0");
    for (unsigned times = 1; times <= 10; times++)
        while (unit_stat("background", "started") < times)
            hak_background_start(purge_the_rest);
    while (HAK_LOAD_RELAXED(&purged) < 10)
        pass(1);
}
