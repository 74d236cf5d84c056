/* SPDX-License-Identifier: MIT
 * Guarded blocks: how often they are sampled, where they lie, how long a place stays closed, and the reports of wrong
 * accesses and calls. */
#include "core/pages/guard.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/os/limit.h"
#include "unit.h"

#define PLACES 256u
#define MOST (64 * HAK_KIB)
#define CALLER ((const void *)0x1234)
#define FREER ((const void *)0x5678)

static size_t page;

static void at_fault(int signal)
{
    (void)signal;
    _exit(7); /* the program's own handler, after the library's */
}

static void start(unsigned rate)
{
    char setting[40];
    snprintf(setting, sizeof setting, "HAKMEM_GUARD_RATE=%u", rate);
    page = (size_t)sysconf(_SC_PAGESIZE);
    signal(SIGSEGV, at_fault);
    unit_init(setting);
}

static char *sample(size_t size)
{
    char *p = hak_guard_sample(size, CALLER);
    assert_non_null(p);
    return p;
}

/* --- how often ---------------------------------------------------------------------------------------- */

TEST(one_of_so_many)
{
    start(10);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 2; i++) {
            hak_guard_count(4);
            assert_null(hak_guard_sample(16, CALLER));
        }
        hak_guard_count(1);
        assert_non_null(hak_guard_sample(16, CALLER));
    }
    hak_guard_count(1000); /* a large refill is one turn, not many */
    assert_non_null(hak_guard_sample(16, CALLER));
    assert_null(hak_guard_sample(16, CALLER));
    assert_int_equal(unit_stat("guard", "sampled"), 4);
}

TEST(sizes_from_none_to_the_most)
{
    start(1);
    fake_os_refuse(HAK_OS_mprotect, 1, ENOMEM, false);
    assert_null(hak_guard_sample(16, CALLER)); /* the kernel refuses to open its place */
    assert_int_equal(unit_stat("guard", "sampled"), 0);
    assert_null(hak_guard_sample(MOST + 1, CALLER));
    assert_int_equal(hak_guard_usable(sample(MOST), "free"), MOST);
    assert_int_equal(hak_guard_usable(sample(0), "free"), 1);
}

TEST(none_without_memory)
{
    if (HAK_SANITIZED)
        skip(); /* the sanitizer's shadow occupies addresses, so the start makes more calls */
    unit_start("HAKMEM_GUARD_RATE=1");
    fake_os_refuse(HAK_OS_mmap, 2, ENOMEM, true); /* after the call that reserves address space */
    assert_true(hak_init());
    assert_null(hak_guard_sample(16, CALLER));
    assert_int_equal(hak_guard_usable(&page, "free"), 0);
}

TEST(none_where_mappings_are_few)
{
    HAK_STORE_RELAXED(&hak_limit_mappings, 500);
    start(1);
    assert_null(hak_guard_sample(16, CALLER));
}

/* --- where -------------------------------------------------------------------------------------------- */

TEST(against_a_closed_page_at_either_end)
{
    start(1);
    for (size_t size = 1; size <= hak_min(3 * page, MOST); size += 97)
        for (unsigned end = 0; end < 2; end++) {
            char *p = sample(size);
            assert_int_equal((uintptr_t)p % 16, 0);
            if (end)
                assert_int_equal((uintptr_t)p % page, 0);
            else
                assert_true(page - ((uintptr_t)p + size - 1) % page <= 16);
            memset(p, 1, size);
            assert_int_equal(hak_guard_usable(p, "free"), size);
            hak_guard_free(p, FREER);
        }
}

TEST(places_serve_in_turn_and_live_ones_stay)
{
    start(1);
    static char *all[PLACES];
    for (unsigned i = 0; i < PLACES; i++)
        memset(all[i] = sample(64), (int)i, 64);
    assert_null(hak_guard_sample(64, CALLER));
    assert_int_equal(unit_stat("guard", "no_place"), 1);
    hak_guard_free(all[200], FREER);
    hak_guard_free(all[7], FREER);
    char *again = sample(64), *other = sample(64);
    assert_true((again - all[7]) / (ptrdiff_t)page == 0);
    assert_true((other - all[200]) / (ptrdiff_t)page == 0);
    for (unsigned i = 0; i < PLACES; i++)
        if (i != 7 && i != 200)
            for (unsigned k = 0; k < 64; k++)
                assert_int_equal((uint8_t)all[i][k], i % 256);
}

TEST(a_freed_place_waits_longest)
{
    start(1);
    char *p = sample(64);
    hak_guard_free(p, FREER);
    for (unsigned i = 1; i < PLACES; i++) {
        char *other = sample(64);
        assert_true(other < p - page || other > p + page);
    }
    char *last = sample(64);
    assert_true(last > p - page && last < p + page);
}

TEST(pages_of_a_freed_block_go_back)
{
    start(1);
    struct fake_calls before = fake_os_calls();
    hak_guard_free(sample(MOST - 100), FREER);
    struct fake_calls after = fake_os_calls();
    assert_int_equal(after.bytes[HAK_OS_madvise] - before.bytes[HAK_OS_madvise], MOST);
    assert_int_equal(after.bytes[HAK_OS_mprotect] - before.bytes[HAK_OS_mprotect], 2 * MOST);
}

/* --- the start ------------------------------------------------------------------------------------------ */

static struct hak_os os_between;
static _Atomic(bool) other_is_done;

static void *start_too(void *unused)
{
    hak_guard_start();
    other_is_done = true;
    return unused;
}

extern struct hak_lock *const __start_hak_locks[] HAK_HIDDEN, *const __stop_hak_locks[] HAK_HIDDEN;

static bool is_awaited(void)
{
    for (struct hak_lock *const *lock = __start_hak_locks; lock < __stop_hak_locks; lock++)
        if ((*lock)->rank == HAK_RANK_GUARD && HAK_LOAD_RELAXED(&(*lock)->word) & 1)
            return true;
    return false;
}

/* While one thread maps the places, another one starts them too: it waits, or comes to the end. */
static intptr_t map_beside(void *hint, size_t size, int prot, int flags)
{
    static pthread_t other;
    if (!other) {
        other = unit_begin(start_too, NULL);
        while (!other_is_done && !is_awaited())
            usleep(100);
    }
    return hak_os_linux.map(hint, size, prot, flags);
}

TEST(two_threads_that_start_them_at_once)
{
    start(0);
    struct sigaction now;
    os_between = *hak_os;
    os_between.map = map_beside;
    hak_os = &os_between;
    assert_true(hak_guard_start());
    while (!other_is_done)
        usleep(100);
    sample(16);
    assert_int_equal(sigaction(SIGSEGV, NULL, &now), 0);
    now.sa_sigaction(SIGSEGV, &(siginfo_t){.si_signo = SIGSEGV, .si_code = SEGV_ACCERR}, NULL);
    assert_int_equal(sigaction(SIGSEGV, NULL, &now), 0);
    assert_true(now.sa_handler == at_fault); /* not the library's own again */
}

/* --- the messages --------------------------------------------------------------------------------------- */

static char *target;
static char wanted[300];

/* The library reports the access to `target`; then the program's own handler runs. */
static void access_target(void)
{
    pid_t child = fork();
    if (child == 0) {
        *(volatile char *)target = 1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 7);
}

static void assert_told(char *at, const char *format, ...)
{
    char said[600] = "";
#if defined(__s390x__) /* its kernel names the page alone */
    skip();
#endif
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    target = at;
    unit_stderr_of(access_target(), said, sizeof said);
    if (!strstr(said, wanted))
        fail_msg("said: %s, not: %s", said, wanted);
}

TEST(access_beside_a_block)
{
    start(1);
    char *high = sample(64), *low = sample(page);
    assert_told(high + 64, "%p, 1 bytes behind guarded block %p of 64 bytes, allocated by the call before %p\n",
                (void *)(high + 64), (void *)high, CALLER);
    assert_told(low - 1, "%p, 1 bytes before guarded block %p of %zu bytes, allocated by", (void *)(low - 1),
                (void *)low, page);
    assert_told(low - page + page * 2 / 5, "behind guarded block %p of 64 bytes", (void *)high);
    assert_told(low - page + page * 3 / 5, "before guarded block %p of %zu bytes", (void *)low, page);
    assert_told(low - page + 1, "behind guarded block %p of 64 bytes", (void *)high); /* the nearer of two */
    char *first = (char *)((uintptr_t)high / page * page) - page;                     /* before all places */
    assert_told(first + 1, "%zu bytes before guarded block %p of 64 bytes", (size_t)(high - first - 1), (void *)high);
}

TEST(access_behind_a_block_of_all_its_pages)
{
    start(1);
    sample(MOST);
    char *p = sample(MOST);
    assert_told(p + MOST + 10, "%p, 11 bytes behind guarded block %p of %zu bytes", (void *)(p + MOST + 10), (void *)p,
                MOST);
    assert_told(p + MOST + page - 8, "%zu bytes behind guarded block %p", page - 7,
                (void *)p); /* there is no block next to it */
    sample(MOST);
    assert_told(p + MOST + 10, "11 bytes behind guarded block %p", (void *)p);
    assert_told(p + MOST + page - 8, "8 bytes before guarded block %p", (void *)(p + MOST + page));
}

TEST(access_after_free_is_told_and_access_elsewhere_is_not)
{
    start(1);
    char *p = sample(100);
    hak_guard_free(p, FREER);
    assert_told(
        p + 10,
        "%p, in guarded pages of block %p of 100 bytes, allocated by the call before %p, freed by the call before %p",
        (void *)(p + 10), (void *)p, CALLER, FREER);
    char said[200] = "";
    target = (char *)16;
    unit_stderr_of(access_target(), said, sizeof said);
    assert_string_equal(said, "");
}

static int send_and_go_on(void)
{
    kill(getpid(), SIGSEGV);
    return 3;
}

/* The handler before ours is called, as for a fault, or the process ends. */
TEST(a_signal_that_was_sent_is_not_swallowed)
{
    start(10);
    pid_t child = fork();
    if (child == 0)
        _exit(send_and_go_on());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

TEST(calls_that_are_wrong)
{
    start(1);
    char *p = sample(100);
    assert_dies(hak_guard_free(p + 16, FREER), "it is not the start of a block; guarded block");
    assert_dies(hak_guard_usable(p + 16, "realloc"), "invalid realloc of");
    assert_dies(hak_guard_free(p + 20 * page, FREER), "it is not the start of a block; guarded no block");
    hak_guard_free(p, FREER);
    assert_dies(hak_guard_free(p, FREER), "it was freed before; guarded block");
}

/* The first block lies against the closed page behind it, the second one against that before it. */
TEST(bytes_beside_a_block_are_checked)
{
    start(1);
    const struct {
        unsigned block;
        ptrdiff_t at;
    } rows[] = {{0, -1}, {0, 100}, {1, (ptrdiff_t)page - 1}};
    char *blocks[] = {sample(100), sample(100)};
    for (unsigned i = 0; i < COUNT(rows); i++) {
        char *block = blocks[rows[i].block];
        block[rows[i].at] ^= 1;
        assert_dies(hak_guard_free(block, FREER), "bytes beside the block were written");
        block[rows[i].at] ^= 1;
    }
    hak_guard_free(blocks[0], FREER);
    hak_guard_free(blocks[1], FREER);
}
