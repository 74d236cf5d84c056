/* SPDX-License-Identifier: MIT
 *
 * Started under each limit on address space, and on data, from less than a program itself needs to plenty. If main is
 * reached, requests are served or refused with ENOMEM; nothing hangs.
 */
#include <sys/resource.h>

#include "check.h"

enum { FIRST_KIB = 64, LAST_KIB = 16 * 1024, STEP_KIB = 64, PLENTY_KIB = 10 * 1024, REFUSED = 3 };

static int under_the_limit(int reached)
{
    bool refused = false;
    if (write(reached, "", 1) != 1)
        return 1;
    for (int i = 0; i < 1000; i++) {
        errno = 0;
        void *p = malloc(i % 10 ? 100 : 100000);
        if (p == NULL && errno != ENOMEM)
            die("refused with errno %d", errno);
        refused = refused || p == NULL;
        free(p);
    }
    return refused ? REFUSED : 0;
}

/* Its exit status, or -1 if the kernel or the loader failed. */
static int start(int which, size_t kib)
{
    int ends[2], status;
    char reached, argument[16];
    if (pipe(ends) != 0)
        die("pipe: %s", strerror(errno));
    snprintf(argument, sizeof(argument), "%d", ends[1]);
    pid_t pid = fork();
    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        struct rlimit limit = {kib * KIB, kib * KIB};
        alarm(60); /* holds beyond exec */
        setrlimit(which, &limit);
        close(STDERR_FILENO);
        execl("/proc/self/exe", "start_limits", argument, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    bool in_main = read(ends[0], &reached, 1) == 1;
    close(ends[0]);
    if (waitpid(pid, &status, 0) != pid)
        die("waitpid: %s", strerror(errno));
    if (WIFSIGNALED(status) && (in_main || WTERMSIG(status) == SIGALRM))
        die("under a limit of %zu KiB: signal %d%s", kib, WTERMSIG(status), in_main ? "" : " before main");
    return in_main ? WEXITSTATUS(status) : -1;
}

static void sweep(int which, const char *name)
{
    size_t none = 0, refused = 0, served = 0;
    for (size_t kib = FIRST_KIB; kib <= LAST_KIB; kib += STEP_KIB) {
        int status = start(which, kib);
        if (status > 0 && status != REFUSED)
            die("%s of %zu KiB: exit status %d", name, kib, status);
        if (status != 0 && kib >= PLENTY_KIB)
            die("%s of %zu KiB is not enough", name, kib);
        none += status < 0;
        refused += status == REFUSED;
        served += status == 0;
    }
    say("%s: %zu limits without a start, %zu with refusals, %zu with all served", name, none, refused, served);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return under_the_limit(atoi(argv[1]));
    sweep(RLIMIT_AS, "RLIMIT_AS");
    sweep(RLIMIT_DATA, "RLIMIT_DATA");
    return 0;
}
