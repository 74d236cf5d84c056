/* SPDX-License-Identifier: MIT */
/*
 * bench_measure REPEAT PRELOAD COMMAND...: runs COMMAND REPEAT times, one after the other, with
 * LD_PRELOAD=PRELOAD ("-" for none), and prints one line with the sum of wall, user and system
 * time, of page faults without input, and the highest resident set of any run. run.py calls it: a small process must
 * be the one that forks, because a child's peak starts with what its parent had in memory.
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct sum {
    uint64_t wall_ns;
    uint64_t user_us;
    uint64_t system_us;
    long peak_kib;
    long faults;
};

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

_Noreturn static void run_command(char **command)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(command[0], command);
    bench_die("%s: %s", command[0], strerror(errno));
}

/* The exit code of one run, or 128 plus the signal that ended it. */
static int measure(char **command, struct sum *sum)
{
    int status;
    struct rusage usage;
    uint64_t begin = bench_now_ns();
    pid_t child = fork();
    if (child < 0)
        bench_die("fork: %s", strerror(errno));
    if (child == 0)
        run_command(command);
    while (wait4(child, &status, 0, &usage) < 0) {
        if (errno != EINTR)
            bench_die("wait4: %s", strerror(errno));
    }
    sum->wall_ns += bench_now_ns() - begin;
    sum->user_us += microseconds(usage.ru_utime);
    sum->system_us += microseconds(usage.ru_stime);
    sum->faults += usage.ru_minflt;
    if (usage.ru_maxrss > sum->peak_kib)
        sum->peak_kib = usage.ru_maxrss;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    struct bench_param repeat[] = {{"REPEAT", 1, 1, 1u << 20, NULL}};
    if (argc < 4)
        bench_usage_error("%d arguments; give REPEAT PRELOAD COMMAND...", argc - 1);
    bench_parse(2, argv, repeat, 1);
    /* Set here and not in the child: setenv in between would touch more of its memory. */
    if (strcmp(argv[2], "-") != 0)
        setenv("LD_PRELOAD", argv[2], 1);

    struct sum sum = {0};
    int code = 0;
    for (uint64_t i = 0; i < repeat[0].value && code == 0; i++)
        code = measure(&argv[3], &sum);
    printf("measured wall_ns=%" PRIu64 " user_us=%" PRIu64 " system_us=%" PRIu64 " peak_kib=%ld code=%d faults=%ld\n",
           sum.wall_ns, sum.user_us, sum.system_us, sum.peak_kib, code, sum.faults);
    return 0;
}
