/* SPDX-License-Identifier: MIT
 * background WHAT: the thread of HAKMEM_BACKGROUND=1.
 *   rss      memory returns to the kernel without a call of the program
 *   bins     what a thread keeps that seldom calls, and never on a slow path
 *   signals  all are blocked in it
 *   fork     in a child it starts anew
 *   rights   a program that drops its rights succeeds, and soon no thread has them; so do setpriv, su and their kin
 *   none     without the setting there is no thread
 *   exit     a process ends well while it works, a hundred times */
#include "resident.h"

#include <dirent.h>
#include <grp.h>
#include <hakmem.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* Frees so much that the thread starts. */
static void grow(void)
{
    enum { N = 100, SIZE = 100000 };
    static char *p[N];
    for (unsigned i = 0; i < N; i++)
        mark(p[i] = malloc(SIZE), SIZE, 1);
    for (unsigned i = 0; i < N; i++)
        free(p[i]);
    traffic();
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

/* /proc's text about the thread; false if it has ended. */
static bool read_status(pid_t tid, char text[4096])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)tid);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, 4095);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* The signal mask of the thread. */
static uint64_t blocked_in(pid_t tid)
{
    char text[4096];
    if (!read_status(tid, text))
        die("no status of thread %d", (int)tid);
    const char *line = strstr(text, "SigBlk:");
    return line ? strtoull(line + strlen("SigBlk:"), NULL, 16) : 0;
}

static void check_signals(void)
{
    pid_t tid = 0;
    grow();
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
    expect_threads(1, "in main");
    hakmem_main_called();
    expect_threads(2, "in a process that asked");
    for (unsigned i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            expect_threads(1, "in the child of a fork");
            if (i % 2)
                hakmem_main_called();
            else
                grow();
            expect_threads(2, "in a child that asked, or grew");
            exit(0);
        }
        if (child < 0)
            die("fork: %s", strerror(errno));
        expect_success(child, "child");
    }
}

/* --- rights ---------------------------------------------------------------------------------------------- */

enum { NOBODY = 65534 };

static void set_capabilities(bool effective, bool permitted)
{
    struct {
        uint32_t version;
        int pid;
    } header = {0x20080522, 0}; /* as linux/capability.h, which not every C library comes with */
    struct {
        uint32_t effective, permitted, inheritable;
    } data[2];
    if (syscall(SYS_capget, &header, data))
        die("capget: %s", strerror(errno));
    for (unsigned i = 0; i < 2; i++) {
        data[i].permitted = permitted ? data[i].permitted : 0;
        data[i].effective = effective ? data[i].permitted : 0;
    }
    if (syscall(SYS_capset, &header, data))
        die("capset: %s", strerror(errno));
}

/* The threads whose ids or capabilities are not those of the first one. */
static unsigned with_other_rights(void)
{
    static const char *const lines[] = {"Uid:", "Gid:", "Groups:", "CapPrm:", "CapEff:"};
    char first[4096], text[4096];
    unsigned others = 0;
    read_status(getpid(), first);
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        for (unsigned i = 0; i < COUNT(lines) && atoi(e->d_name) && read_status(atoi(e->d_name), text); i++) {
            const char *one = strstr(first, lines[i]), *other = strstr(text, lines[i]);
            if (strncmp(one, other, strcspn(one, "\n"))) {
                others++;
                break;
            }
        }
    closedir(d);
    return others;
}

/* As setpriv does, with memory that waits to be returned: it keeps capabilities in its one thread, for setresgid. */
static void drop_rights(bool with_capabilities)
{
    grow();
    if (with_capabilities && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
        die("PR_SET_KEEPCAPS: %s", strerror(errno));
    if (!with_capabilities && (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY)))
        die("setresgid: %s", strerror(errno));
    if (setresuid(NOBODY, NOBODY, NOBODY))
        die("setresuid: %s", strerror(errno));
    if (with_capabilities) {
        set_capabilities(true, true);
        if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY))
            die("setresgid: %s", strerror(errno));
        set_capabilities(false, false);
    }
    if (!setuid(0))
        die("setuid(0) gave the rights back");
    for (unsigned i = 0; i < 600 && with_other_rights(); i++)
        traffic();
    if (with_other_rights())
        die("after many rounds, a thread has rights that the process dropped");
    exit(0);
}

static void check_rights(void)
{
    static const char *const commands[] = {
        "setpriv --reuid=65534 --regid=65534 --clear-groups true",
        "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all true",
        "su nobody -s /bin/sh -c true",
        "sudo -u nobody true",
        "gosu nobody true",
        "capsh --keep=1 --user=nobody -- -c true",
        "chroot --userspec=65534:65534 / true",
    };
    if (getuid()) {
        printf("needs root\n");
        exit(77);
    }
    for (unsigned i = 0; i < 6; i++) {
        pid_t child = fork();
        if (child == 0)
            drop_rights(i % 2);
        expect_success(child, "a child that drops its rights");
    }
    if (getenv("BACKGROUND_LIBRARY"))
        setenv("LD_PRELOAD", getenv("BACKGROUND_LIBRARY"), 1);
    for (unsigned i = 0; i < COUNT(commands); i++) {
        char line[200];
        int length = (int)strcspn(commands[i], " ");
        snprintf(line, sizeof line, "command -v %.*s >/dev/null || exit 0; exec %s", length, commands[i], commands[i]);
        if (system(line))
            die("failed: %s", commands[i]);
    }
}

static void check_none(void)
{
    hakmem_main_called();
    grow();
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
        {"rss", check_rss},   {"bins", check_bins}, {"signals", check_signals}, {"fork", check_fork},
        {"none", check_none}, {"exit", check_exit}, {"rights", check_rights},
    };
    for (size_t i = 0; i < COUNT(checks); i++)
        if (argc == 2 && !strcmp(argv[1], checks[i].name)) {
            checks[i].check();
            return 0;
        }
    die("usage: background rss|bins|signals|fork|none|exit|rights");
}
