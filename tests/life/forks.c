/* SPDX-License-Identifier: MIT
 * fork, vfork and posix_spawn: among threads, in a thread, in a signal handler, with the handlers of another library,
 * beside the C library's streams. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "cases.h"

extern char **environ;

static void fork_often(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        life_fork(i % 8 == 0);
}

static void among_threads(unsigned count)
{
    life_start_busy(2);
    fork_often(count);
    life_end_busy();
}

/* The handlers that the other library registered run with and without a second thread. */
static void with_handlers(unsigned count)
{
    fork_often(2);
    among_threads(count);
}

static void *fork_here(void *count)
{
    fork_often((unsigned)(uintptr_t)count);
    return NULL;
}

static void in_thread(unsigned count)
{
    pthread_t t;
    life_start_busy(2);
    if (pthread_create(&t, NULL, fork_here, (void *)(uintptr_t)count) || pthread_join(t, NULL))
        die("no thread");
    life_end_busy();
}

/* A forked child forks again: its parent's threads do not exist in it. */
static void in_child(unsigned count)
{
    life_start_busy(2);
    pid_t child = fork();
    if (child == 0) {
        among_threads(count);
        exit(0);
    }
    expect_success(child, "the child that forks");
    life_end_busy();
}

static _Atomic(bool) over;

static void *work_locked(void *unused)
{
    while (!atomic_load(&over)) {
        life_work_locked();
        usleep(50); /* or the mutex is never free for long */
    }
    return unused;
}

static void with_mutex(unsigned count)
{
    pthread_t t;
    if (pthread_create(&t, NULL, work_locked, NULL))
        die("no thread");
    for (unsigned i = 0; i < count; i++)
        life_fork(false);
    atomic_store(&over, true);
    pthread_join(t, NULL);
}

/* Destructors of keys that were made after the library's own. */
static void fork_at_end(void *unused)
{
    (void)unused;
    life_fork(true);
    life_traffic(50, 19);
}

static void *end_with_fork(void *key)
{
    life_traffic(50, 23);
    pthread_setspecific(*(pthread_key_t *)key, key);
    return NULL;
}

static void in_ending_thread(unsigned count)
{
    pthread_key_t key;
    pthread_key_create(&key, fork_at_end);
    life_start_busy(1);
    for (unsigned i = 0; i < count; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, end_with_fork, &key) || pthread_join(t, NULL))
            die("no thread");
    }
    life_end_busy();
}

/* --- in a signal handler -------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled, in_handlers_child;

/* The child ends at once, or continues where its parent was interrupted. */
static void fork_in_handler(int signal)
{
    (void)signal;
    if (in_handlers_child)
        return;
    int saved = errno;
    pid_t child = fork();
    handled++;
    if (child == 0) {
        if (handled % 2)
            _exit(0);
        in_handlers_child = 1;
        return;
    }
    expect_success(child, "the handler's child");
    errno = saved;
}

static void in_handler(unsigned count)
{
    struct sigaction action = {.sa_handler = fork_in_handler};
    struct itimerval every = {{0, 1000}, {0, 1000}};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &every, NULL); /* counts the time at work, so the child gets none */
    uint64_t random = 1;
    while ((unsigned)handled < count && !in_handlers_child)
        life_traffic(100, random++);
    if (in_handlers_child) {
        life_traffic(200, random);
        exit(0);
    }
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
}

/* --- without fork's handlers ----------------------------------------------------------------------------- */

static void by_vfork(unsigned count)
{
    char *const arguments[] = {"true", NULL};
    life_start_busy(2);
    for (unsigned i = 0; i < count; i++) {
        pid_t child = vfork();
        if (child == 0) {
            if (i % 2)
                execve("/bin/true", arguments, environ);
            _exit(0);
        }
        expect_success(child, "vfork's child");
    }
    life_end_busy();
    life_traffic(100, 1);
}

/* A process with one thread; no fork handlers run. */
static void by_plain_fork(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        life_traffic(20, i);
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) {
            life_traffic(100, i);
            exit(0);
        }
        expect_success(child, "a child without handlers");
    }
}

/* HAKMEM_BACKGROUND=1: the thread starts when the heap has grown, and makes a round, which the delay may postpone. */
static void wait_for_rounds(void)
{
    static char *blocks[100];
    for (unsigned i = 0; i < sizeof blocks / sizeof *blocks; i++)
        blocks[i] = malloc(100000);
    for (unsigned i = 0; i < 2000 && !life_statistic("rounds"); i++) {
        life_traffic(20, i);
        usleep(10000);
    }
    if (!life_statistic("rounds"))
        die("the thread makes no round");
}

/* Waits until no other thread of the process runs: none is within a round then, and holds locks. */
static void wait_for_rest(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool rests;
    do {
        rests = true;
        rewinddir(tasks);
        for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
            char name[64], line[200] = "";
            snprintf(name, sizeof name, "%.20s/stat", e->d_name);
            int tid = atoi(e->d_name), fd = tid && tid != getpid() ? openat(dirfd(tasks), name, O_RDONLY) : -1;
            if (fd >= 0 && read(fd, line, sizeof line - 1) > 0)
                rests &= !strstr(line, ") R") && !strstr(line, ") D");
            if (fd >= 0)
                close(fd);
        }
    } while (!rests);
    closedir(tasks);
}

pid_t _Fork(void) __attribute__((weak)); /* since glibc 2.34 */

static pid_t bare_fork(unsigned way)
{
    if (way == 0 && _Fork)
        return _Fork();
#ifdef SYS_fork
    if (way == 1)
        return (pid_t)syscall(SYS_fork);
#endif
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* The library's thread does not exist in the children. Each ends by exit, and by return from main. */
static void by_bare_fork(unsigned count)
{
    for (unsigned i = 0; i < 6 * count; i++) {
        wait_for_rest();
        pid_t child = bare_fork(i % 3);
        if (child == 0 && i / 3 % 2)
            exit(0);
        if (child == 0)
            return;
        expect_success(child, "a child without handlers");
    }
}

static void by_bare_fork_after_rounds(unsigned count)
{
    wait_for_rounds();
    by_bare_fork(count);
}

static void by_spawn(unsigned count)
{
    char *const arguments[] = {"true", NULL};
    life_start_busy(2);
    for (unsigned i = 0; i < count; i++) {
        pid_t child;
        if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ))
            die("posix_spawn failed");
        expect_success(child, "the spawned program");
    }
    life_end_busy();
}

/* --- streams --------------------------------------------------------------------------------------------- */

static FILE *shared;

static void *flush_all(void *unused)
{
    while (!atomic_load(&over))
        fflush(NULL);
    return unused;
}

/* Allocates while it holds a stream. */
static void *read_lines(void *unused)
{
    char *line = NULL;
    size_t size = 0;
    while (!atomic_load(&over)) {
        rewind(shared);
        while (getline(&line, &size, shared) > 0)
            ;
        free(line);
        line = NULL;
        size = 0;
    }
    return unused;
}

static void *write_streams(void *unused)
{
    while (!atomic_load(&over)) {
        FILE *own = fopen("/dev/null", "w");
        char *text = NULL;
        size_t size = 0;
        FILE *memory = open_memstream(&text, &size);
        if (!own || !memory)
            die("no stream");
        fprintf(own, "%0500d\n", 1);
        for (int i = 0; i < 40; i++)
            fprintf(memory, "%02000d\n", i);
        fclose(own);
        fclose(memory);
        free(text);
    }
    return unused;
}

static FILE *long_lines(void)
{
    FILE *f = tmpfile();
    if (!f)
        die("no file");
    for (int length = 100; length < 200000; length *= 2)
        fprintf(f, "%0*d\n", length, 1);
    fflush(f);
    return f;
}

static void fork_and_print(void)
{
    pid_t child = fork();
    if (child == 0) {
        FILE *own = fopen("/dev/null", "w");
        life_traffic(10, 1);
        if (!own || fprintf(own, "%0500d\n", 1) < 0 || fclose(own))
            _exit(2);
        fflush(NULL);
        _exit(0);
    }
    expect_success(child, "a child that prints");
}

/* The requested number of forks, fewer if on a busy machine they wait long for the locks that the threads pass
 * around. */
static void beside_streams(unsigned count, void *(*const *works)(void *), unsigned threads)
{
    pthread_t t[4];
    shared = long_lines();
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&t[i], NULL, works[i], NULL))
            die("no thread");
    time_t end = time(NULL) + 6;
    for (unsigned i = 0; i < count && (i < 5 || time(NULL) < end); i++)
        fork_and_print();
    atomic_store(&over, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    fclose(shared);
}

static void beside_flush(unsigned count)
{
    beside_streams(count, (void *(*const[])(void *)){flush_all, read_lines, write_streams}, 3);
}

static void beside_writers(unsigned count)
{
    beside_streams(count, (void *(*const[])(void *)){write_streams, write_streams, read_lines}, 3);
}

static void nothing(unsigned count)
{
    (void)count;
    life_traffic(100, 1);
}

const struct life_case life_forks[] = {
    {"fork_among_threads", among_threads, 15},
    {"fork_in_thread", in_thread, 15},
    {"fork_in_child", in_child, 10},
    {"fork_in_ending_thread", in_ending_thread, 10},
    {"fork_in_handler", in_handler, 30},
    {"atfork_prepare", with_handlers, 10},
    {"atfork_parent", with_handlers, 10},
    {"atfork_child", with_handlers, 10},
    {"atfork_threads", with_handlers, 3},
    {"atfork_mutex", with_mutex, 50},
    {"atfork_fork", with_handlers, 15},
    {"fork_in_constructor", nothing, 0}, /* the other library forks */
    {"fork_in_destructor", nothing, 0},
    {"vfork", by_vfork, 20},
    {"plain_fork", by_plain_fork, 10},
    {"bare_fork", by_bare_fork, 1},
    {"bare_fork_after_rounds", by_bare_fork_after_rounds, 1},
    {"spawn", by_spawn, 10},
    {"streams_flushed", beside_flush, 50},
    {"streams_written", beside_writers, 30},
    {0},
};
