/* SPDX-License-Identifier: MIT
 * background WHAT: the thread of HAKMEM_BACKGROUND=1.
 *   rss      memory goes back with no call of the program
 *   bins     what a thread keeps that seldom calls, and on no slow path
 *   signals  all are blocked in it
 *   fork     it is gone in a child, and another one starts there when it is needed
 *   none     without the setting there is no thread
 *   exit     a process that ends right after it started ends well, a hundred times */
#include "resident.h"
#include "threads.h"

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void check_rss(void)
{
    enum { N = 200, SIZE = 1000000 };
    static char *p[N];
    wait_for_thread();
    size_t before = resident();
    for (unsigned i = 0; i < N; i++)
        mark(p[i] = malloc(SIZE), SIZE, 1);
    size_t full = resident();
    for (unsigned i = 0; i < N; i++)
        free(p[i]);
    for (unsigned i = 0; i < 100 && resident() > before + (full - before) / 20; i++)
        pause_ms(50); /* no malloc, no free */
    if (full < before + (size_t)N * SIZE / 10 * 9 || resident() > before + (full - before) / 20)
        die("resident before %zu KiB, full %zu KiB, after 5 s %zu KiB", before / KIB, full / KIB, resident() / KIB);
}

/* Freed in random order, the blocks of each bin lie in slabs all over the heap, and keep them. So do those
 * of others' slabs that wait to go back. */
static void check_bins(void)
{
    enum { N = 300000, KEPT = 1 << 20 };
    static void *p[N];
    uint64_t random = 1;
    wait_for_thread();
    size_t before = resident() + sizeof p;
    for (unsigned i = 0; i < N; i++)
        p[i] = malloc(200 + next_random(&random) % 100);
    for (unsigned i = N; i; i--) {
        unsigned chosen = (unsigned)(next_random(&random) % i);
        free(p[chosen]);
        p[chosen] = p[i - 1];
    }
    for (unsigned i = 0; i < 50 && resident() > before + KEPT; i++) {
        pause_ms(100);
        free(malloc(50));
    }
    if (resident() > before + KEPT)
        die("resident before %zu KiB, after 5 s of few calls %zu KiB", before / KIB, resident() / KIB);
}

/* The mask of thread `tid`, as the kernel tells it. */
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
    wait_for_thread();
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
    wait_for_thread();
    for (unsigned i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (threads(NULL) != 1)
                die("the child of a fork has %u threads", threads(NULL));
            wait_for_thread();
            exit(0);
        }
        if (child < 0)
            die("fork: %s", strerror(errno));
        expect_success(child, "child");
    }
    if (threads(NULL) != 2)
        die("the parent has %u threads, not 2", threads(NULL));
}

static void check_none(void)
{
    traffic(1000, 2);
    if (threads(NULL) != 1)
        die("%u threads without HAKMEM_BACKGROUND", threads(NULL));
}

static void check_exit(void)
{
    for (unsigned i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            traffic(150 + i % 10, 2);
            exit(0); /* the destructor joins the thread */
        }
        if (child < 0)
            die("fork: %s", strerror(errno));
        expect_success(child, "exit");
    }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*check)(void); } checks[] = {
        {"rss", check_rss}, {"bins", check_bins}, {"signals", check_signals}, {"fork", check_fork},
        {"none", check_none}, {"exit", check_exit},
    };
    for (size_t i = 0; i < COUNT(checks); i++)
        if (argc == 2 && !strcmp(argv[1], checks[i].name)) {
            checks[i].check();
            return 0;
        }
    die("usage: background rss|bins|signals|fork|none|exit");
}
