/* SPDX-License-Identifier: MIT
 *
 * prewarm warm     after the first small allocation of a thread, the first block of each pool class comes
 *                  without a system call and without a page fault, its pages included
 * prewarm cold     the same must be seen to take faults, or the test above could not fail
 *
 * A system call in between ends the process: a seccomp filter allows none but those of the test itself.
 * Run with HAKMEM_POOL_TLS_PREWARM. Prints what prewarming added to the resident set of one thread. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "check.h"

static const size_t classes_kib[] = {8, 16, 24, 32, 40, 48, 52};

enum { MOST_KIB = 2048, PAGE = 4096 };

static bool warm;

/* Exact: the kernel walks the page tables. The counter behind VmRSS is off by dozens of pages. */
static long resident_kib(void)
{
    char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        skip("no /proc/self/smaps_rollup");
    close(fd);
    text[n] = 0;
    const char *found = strstr(text, "\nRss:");
    if (!found)
        die("no Rss in %s", text);
    return atol(found + 5);
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* From here on this thread may only read its fault counts, write, and end. */
static void forbid_system_calls(void)
{
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    static struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_getrusage),
        ALLOW(SYS_write),
        ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    static const struct sock_fprog filter = {COUNT(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        skip("no seccomp filter: %s", strerror(errno));
}

static void take_one_of_each(void)
{
    long first = faults(), seen = 0; /* the first call maps its own stack and tables */
    for (size_t i = 0; i < COUNT(classes_kib); i++) {
        long before = faults();
        char *p = malloc(classes_kib[i] * KIB);
        if (!p)
            die("malloc(%zu KiB): NULL", classes_kib[i]);
        for (size_t at = 0; at < classes_kib[i] * KIB; at += PAGE)
            ((volatile char *)p)[at] = 1;
        long now = faults() - before;
        if (warm && now)
            die("the first block of %zu KiB took %ld page faults", classes_kib[i], now);
        seen += now;
    }
    if (!warm && !seen)
        die("no page fault without prewarming: this test sees none (%ld in all)", faults() - first);
}

static void *in_thread(void *arg)
{
    (void)arg;
    long before = resident_kib();
    char *volatile small = malloc(16);
    small[0] = 1;
    long added = resident_kib() - before;
    say("the thread's first block added %ld KiB", added);
    if (added > MOST_KIB)
        die("a thread costs %ld KiB, more than %d", added, (int)MOST_KIB);
    faults();
    if (warm)
        forbid_system_calls();
    take_one_of_each();
    _exit(0);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    warm = argc > 1 && !strcmp(argv[1], "warm");
    resident_kib(); /* its own pages */
    if (pthread_create(&thread, NULL, in_thread, NULL))
        die("no thread");
    pthread_join(thread, NULL);
    return 1;
}
