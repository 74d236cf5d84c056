/* SPDX-License-Identifier: MIT
 * Does to the recorder what a signal's handler or another thread may do while a child's first event opens its file,
 * under the recorder's lock, or maps a chunk of it: getrlimit is called there, and this program has its own.
 * argv[1]: handler, chunk, fork, wait or stuck. Ends with 0, or with the line that saw what should not be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : _exit(__LINE__ & 127))

static void (*volatile armed)(void);
static volatile int passes;      /* calls that are let pass before that */
static volatile int other, done; /* the second thread's id; whether it has ended */
static pthread_t thread;

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit)
{
    void (*now)(void) = armed && passes-- == 0 ? armed : NULL;
    if (now)
        armed = NULL;
    if (now)
        now();
    return (int)syscall(SYS_prlimit64, 0, resource, NULL, limit);
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    return getrlimit64(resource, (struct rlimit64 *)limit);
}

static void allocate(int number)
{
    for (int i = 0; i < 20; i++) {
        void *volatile block = malloc((size_t)(i + number));
        free(block);
    }
}

static void raise_now(void)
{
    raise(SIGUSR1);
}

static void wait_for_child(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void fork_now(void)
{
    pid_t child = fork();
    if (!child) {
        allocate(1);
        _exit(0);
    }
    wait_for_child(child);
}

static void *work(void *unused)
{
    other = (int)syscall(SYS_gettid);
    allocate(1);
    done = 1;
    return unused;
}

static char state_of(int id)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    char *end = n > 0 ? strrchr(text, ')') : NULL;
    return end ? end[2] : 0;
}

/* At most half a minute. */
static void pause_until(int (*holds)(void))
{
    for (int i = 0; i < 3000 && !holds(); i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    CHECK(holds());
}

static int other_sleeps(void)
{
    return other && (done || state_of(other) == 'S');
}

static int other_is_done(void)
{
    return done;
}

static void start_other(void)
{
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
}

/* A waiter that ran all the time would keep the lock's holder off the CPU where priorities are fixed. */
static void wait_now(void)
{
    start_other();
    pause_until(other_sleeps);
    CHECK(!done);
}

static void stuck_now(void)
{
    start_other();
    pause_until(other_is_done);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    allocate(1);
    signal(SIGUSR1, allocate);
    pid_t child = fork();
    if (!child) {
        passes = !strcmp(mode, "chunk");
        armed = passes || !strcmp(mode, "handler") ? raise_now
                : !strcmp(mode, "fork")            ? fork_now
                : !strcmp(mode, "wait")            ? wait_now
                                                   : stuck_now;
        allocate(1);
        CHECK(!armed);
        if (other)
            pthread_join(thread, NULL);
        _exit(0);
    }
    wait_for_child(child);
    return 0;
}
