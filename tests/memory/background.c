/* SPDX-License-Identifier: MIT
 * background WHAT: the thread of HAKMEM_BACKGROUND=1.
 *   rss      memory returns to the kernel without a call of the program
 *   bins     what a thread keeps that seldom calls, and never on a slow path
 *   signals  all are blocked in it
 *   fork     main finds it, a child has none until it asks for one
 *   none     without the setting there is no thread
 *   exit     a process ends well while it works, a hundred times */
#include "resident.h"

#include <dirent.h>
#include <hakmem.h>
#include <time.h>

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* The number of threads; *other is the id of one that is not the first. */
static unsigned threads(pid_t *other)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    if (!d)
        die("/proc/self/task cannot be read");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            n++;
            if (atoi(e->d_name) != getpid() && other)
                *other = atoi(e->d_name);
        }
    closedir(d);
    return n;
}

static void expect_threads(unsigned n, const char *where)
{
    if (threads(NULL) != n)
        die("%u threads %s, not %u", threads(NULL), where, n);
}

/* Slow paths, with ticks. */
static void traffic(void)
{
    for (unsigned i = 0; i < 30; i++, pause_ms(5))
        for (unsigned n = 0; n < 10000; n++)
            free(malloc(64));
}

static void check_rss(void)
{
    enum { N = 200, SIZE = 1000000 };
    static char *p[N];
    size_t before = resident();
    for (unsigned i = 0; i < N; i++)
        mark(p[i] = malloc(SIZE), SIZE, 1);
    size_t full = resident();
    for (unsigned i = 0; i < N; i++)
        free(p[i]);
    for (unsigned i = 0; i < 600 && resident() > before + (full - before) / 20; i++)
        pause_ms(50); /* no malloc, no free */
    if (full < before + (size_t)N * SIZE / 10 * 9 || resident() > before + (full - before) / 20)
        die("resident before %zu KiB, full %zu KiB, after 30 s %zu KiB", before / KIB, full / KIB, resident() / KIB);
}

/* Freed in random order, the blocks of each bin lie in slabs all over the heap, and pin them. So do remote blocks that
 * wait to be returned. */
static void check_bins(void)
{
    enum { N = 300000, KEPT = 1 << 20 };
    static void *p[N];
    uint64_t random = 1;
    size_t before = resident() + sizeof p;
    for (unsigned i = 0; i < N; i++)
        p[i] = malloc(200 + next_random(&random) % 100);
    for (unsigned i = N; i; i--) {
        unsigned chosen = (unsigned)(next_random(&random) % i);
        free(p[chosen]);
        p[chosen] = p[i - 1];
    }
    for (unsigned i = 0; i < 300 && resident() > before + KEPT; i++) {
        pause_ms(100);
        free(malloc(50));
    }
    if (resident() > before + KEPT)
        die("resident before %zu KiB, after 30 s of few calls %zu KiB", before / KIB, resident() / KIB);
}

/* The signal mask of thread `tid`, from /proc. */
static uint64_t blocked_in(pid_t tid)
{
    char path[64], text[4096] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)tid);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        die("%s cannot be read", path);
    close(fd);
    const char *line = strstr(text, "SigBlk:");
    return line ? strtoull(line + strlen("SigBlk:"), NULL, 16) : 0;
}

static void check_signals(void)
{
    pid_t tid = 0;
    threads(&tid);
    uint64_t blocked = blocked_in(tid);
    for (int s = 1; s < SIGRTMIN; s++)
        if (s != SIGKILL && s != SIGSTOP && s < 32 && !(blocked >> (s - 1) & 1))
            die("signal %d is not blocked in the thread (mask %llx)", s, (unsigned long long)blocked);
    if (blocked_in(getpid()) & blocked)
        die("the program's own thread has signals blocked");
}

static void check_fork(void)
{
    expect_threads(2, "in main");
    for (unsigned i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            traffic();
            expect_threads(1, "in the child of a fork");
            hakmem_main_called();
            hakmem_main_called();
            expect_threads(2, "in a child that asked");
            exit(0);
        }
        if (child < 0)
            die("fork: %s", strerror(errno));
        expect_success(child, "child");
    }
    expect_threads(2, "in the parent");
}

static void check_none(void)
{
    hakmem_main_called();
    traffic();
    expect_threads(1, "without HAKMEM_BACKGROUND");
}

static void check_exit(void)
{
    for (unsigned i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            hakmem_main_called();
            pause_ms(i % 20);
            exit(0);
        }
        if (child < 0)
            die("fork: %s", strerror(errno));
        expect_success(child, "exit");
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*check)(void);
    } checks[] = {
        {"rss", check_rss},   {"bins", check_bins}, {"signals", check_signals},
        {"fork", check_fork}, {"none", check_none}, {"exit", check_exit},
    };
    for (size_t i = 0; i < COUNT(checks); i++)
        if (argc == 2 && !strcmp(argv[1], checks[i].name)) {
            checks[i].check();
            return 0;
        }
    die("usage: background rss|bins|signals|fork|none|exit");
}
