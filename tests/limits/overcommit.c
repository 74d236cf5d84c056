/* SPDX-License-Identifier: MIT
 *
 * The library under overcommit_memory=2, where address space that could be written is charged at once. Needs root;
 * changes a setting of the whole machine for a moment. A guard process in its own session restores the old value when
 * this one ends, however it ends.
 */
#include <fcntl.h>
#include <sys/prctl.h>

#include "churn.h"

static const char setting[] = "/proc/sys/vm/overcommit_memory";

static bool write_setting(char value)
{
    int fd = open(setting, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, &value, 1) == 1;
    if (fd >= 0)
        close(fd);
    return written;
}

static char read_setting(void)
{
    char value = '?';
    int fd = open(setting, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &value, 1) != 1)
        value = '?';
    if (fd >= 0)
        close(fd);
    return value;
}

static long committed_kib(const char *key)
{
    static char text[8192];
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, key);
    return line == NULL ? -1 : strtol(line + strlen(key) + 1, NULL, 10);
}

/* Runs as a fresh program, started under the setting. */
static int under_the_setting(void)
{
    alarm(60);
    long before = committed_kib("Committed_AS:"), limit = committed_kib("CommitLimit:");
    void *p = malloc(1000);
    if (p == NULL)
        die("1000 bytes refused");
    /* More than the whole machine may commit. */
    errno = 0;
    if (malloc((size_t)limit * KIB + 512 * MIB) != NULL || errno != ENOMEM)
        die("more than the commit limit was granted, or errno is %d", errno);
    churn_in_threads();
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno)); /* the whole commitment counts twice */
    if (pid == 0) {
        churn((void *)9);
        _exit(0);
    }
    expect_success(pid, "the forked child");
    long after = committed_kib("Committed_AS:");
    say("committed by the machine: %ld MiB before, %ld MiB after, limit %ld MiB", before / 1024, after / 1024,
        limit / 1024);
    free(p);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return under_the_setting();
    if (!getenv("TEST_MACHINE"))
        skip("changes a setting of the whole machine: tools/test.sh machine");
    char old = read_setting();
    if (geteuid() != 0 || old < '0' || old > '2')
        skip("needs root and %s", setting);
    if (committed_kib("Committed_AS:") + 2 * 1024 * 1024 > committed_kib("CommitLimit:"))
        skip("the machine has committed too much already");

    int alive[2];
    if (pipe(alive) != 0)
        die("pipe: %s", strerror(errno));
    pid_t guard = fork();
    if (guard < 0)
        die("fork: %s", strerror(errno));
    if (guard == 0) {
        char none;
        setsid();
        for (int sig = 1; sig < 32; sig++)
            signal(sig, SIG_IGN);
        close(alive[1]);
        while (read(alive[0], &none, 1) < 0 && errno == EINTR)
            ;
        _exit(write_setting(old) && read_setting() == old ? 0 : 1);
    }
    close(alive[0]);
    fcntl(alive[1], F_SETFD, FD_CLOEXEC);

    bool allowed = write_setting('2') && read_setting() == '2';
    int status = 0;
    if (allowed) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            execl("/proc/self/exe", argv[0], "run", (char *)NULL);
            _exit(111);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            status = -1;
    }
    close(alive[1]); /* the guard acts */
    expect_success(guard, "putting the setting back");
    if (!allowed)
        skip("%s is not writable here", setting);
    if (status != 0)
        die("under overcommit_memory=2: status %#x", (unsigned)status);
    return 0;
}
