/* SPDX-License-Identifier: MIT
 * No function of the library is a cancellation point: each call is made by a thread that is cancelled already. The call
 * must end, and the process must continue. */
#include "cases.h"

static _Atomic(bool) came_through;

/* The bodies of the threads: none has a cancellation point of its own. */
static void call_mixed(void)
{
    life_traffic(300, 5);
}

static void call_large(void)
{
    for (size_t size = 64 * KIB; size <= 256 * MIB; size *= 4)
        life.give(life.take(size));
    if (life.take((size_t)1 << 60))
        die("more than there is");
}

static void call_realloc(void)
{
    void *p = NULL;
    for (size_t size = 10; size < 8 * MIB; size *= 3)
        p = life.change(p, size);
    life.give(p);
}

static void call_calloc(void)
{
    for (size_t size = 10; size < 8 * MIB; size *= 3)
        life.give(life.take_zeroed(1, size));
}

static void call_aligned(void)
{
    for (size_t align = 16; align <= MIB; align *= 4) {
        void *p = life.take_aligned(align, 5000);
        if (life.usable(p) < 5000)
            die("a block of 5000 bytes has %zu", life.usable(p));
        life.give(p);
    }
}

static void call_trim(void)
{
    life_traffic(300, 9);
    life.trim(0);
}

static FILE *null;

static void call_info(void)
{
    life.info(0, null);
}

/* --- what is printed ------------------------------------------------------------------------------------------ */

static char told[1 << 18];

/* The call's output on stderr, without numbers. */
static size_t told_by(void (*call)(void))
{
    char path[] = "/tmp/life.XXXXXX";
    int fd = mkstemp(path), own = dup(STDERR_FILENO);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    call();
    dup2(own, STDERR_FILENO);
    ssize_t n = pread(fd, told, sizeof told, 0);
    size_t kept = 0;
    for (ssize_t i = 0; i < n; i++)
        if (told[i] < '0' || told[i] > '9')
            told[kept++] = told[i];
    close(fd);
    close(own);
    return kept;
}

static void call_print(void)
{
    life.print();
}

static void call_statistics(void)
{
    life.stats(STDERR_FILENO, 1);
}

/* --- cancelled in a call -------------------------------------------------------------------------------------- */

static void *call_cancelled(void *call)
{
    pthread_cancel(pthread_self());
    ((void (*)(void))call)();
    atomic_store(&came_through, true);
    pthread_testcancel();
    return call;
}

/* NULL, or an error. */
static const char *in_cancelled_thread(void (*call)(void))
{
    pthread_t t;
    void *result;
    atomic_store(&came_through, false);
    if (pthread_create(&t, NULL, call_cancelled, (void *)call) || pthread_join(t, &result))
        return "no thread";
    if (!atomic_load(&came_through))
        return "the thread was cancelled inside of the call";
    return result == PTHREAD_CANCELED ? NULL : "the thread was not cancelled at all";
}

static const char *wrong;

static void print_cancelled(void)
{
    wrong = in_cancelled_thread(call_print);
}

static void statistics_cancelled(void)
{
    wrong = in_cancelled_thread(call_statistics);
}

static void compare(const char *what, void (*plain)(void), void (*cancelled)(void))
{
    told_by(plain); /* names of objects that the first call made */
    size_t all = told_by(plain), then = told_by(cancelled);
    if (wrong)
        die("%s: %s", what, wrong);
    if (!all || then < all)
        die("%s under a pending cancel: %zu characters besides numbers, else %zu", what, then, all);
}

static void cancelled(unsigned count)
{
    static const struct {
        const char *name;
        void (*call)(void);
    } calls[] = {
        {"malloc and free", call_mixed}, {"large blocks", call_large},    {"realloc", call_realloc},
        {"calloc", call_calloc},         {"aligned_alloc", call_aligned}, {"malloc_trim", call_trim},
        {"malloc_info", call_info},
    };
    null = fopen("/dev/null", "w");
    setvbuf(null, NULL, _IONBF, 0); /* so that each word of it is written at once */
    for (unsigned i = 0; i < count * COUNT(calls); i++) {
        wrong = in_cancelled_thread(calls[i % COUNT(calls)].call);
        if (wrong)
            die("%s: %s", calls[i % COUNT(calls)].name, wrong);
    }
    life_traffic(300, 1); /* an abandoned lock shows here */
    life_fork(true);
}

static void told_cancelled(unsigned count)
{
    (void)count;
    compare("malloc_stats", call_print, print_cancelled);
    compare("hakmem_stats", call_statistics, statistics_cancelled);
}

/* exit of a thread that is cancelled: the report at exit must be complete (life.py checks). */
static void exit_cancelled(unsigned count)
{
    life_traffic(count, 1);
    pthread_cancel(pthread_self());
    exit(0);
}

const struct life_case life_calls[] = {
    {"cancelled", cancelled, 2},
    {"told_cancelled", told_cancelled, 0},
    {"exit_cancelled", exit_cancelled, 300},
    {0},
};
