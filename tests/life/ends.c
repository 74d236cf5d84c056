/* SPDX-License-Identifier: MIT
 * The end of threads and of the process: exit among threads that allocate or end, threads of constructors, threads
 * whose first call is free, children that leave without exit. */
#include <glob.h>
#include <sys/wait.h>

#include "cases.h"

/* --- exit -------------------------------------------------------------------------------------------------- */

static void *short_thread(void *seed)
{
    life_traffic(5, (uintptr_t)seed);
    return NULL;
}

static void *start_threads(void *seed)
{
    for (uintptr_t n = (uintptr_t)seed;; n++) {
        pthread_t t;
        if (!pthread_create(&t, NULL, short_thread, (void *)n))
            pthread_detach(t);
        usleep(100); /* otherwise there are too many at once */
    }
    return NULL;
}

static void give_at_exit(void)
{
    life_traffic(50, 17);
}

static void exit_often(unsigned count, void (*start)(void))
{
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            atexit(give_at_exit);
            start();
            usleep(1000 + i * 100);
            exit(0);
        }
        expect_success(child, "a child that exits");
    }
}

static void start_busy(void)
{
    life_start_busy(3);
}

static void start_ending(void)
{
    pthread_t t[2];
    for (uintptr_t i = 0; i < COUNT(t); i++)
        if (pthread_create(&t[i], NULL, start_threads, (void *)i))
            die("no thread");
}

static void exit_busy(unsigned count)
{
    exit_often(count, start_busy);
    life_start_busy(3);
}

static void exit_ending(unsigned count)
{
    exit_often(count, start_ending);
    start_ending();
}

/* --- threads -------------------------------------------------------------------------------------------------- */

/* The other library's constructor has started and joined many. */
static void threads_of_constructor(unsigned count)
{
    (void)count;
    life_traffic(100, 1);
    long live = life_statistic("live"), slabs = life_statistic("active_slabs");
    if (live > 1)
        die("%ld threads live, and %ld slabs are theirs: all but this one have ended", live, slabs);
}

static void *free_first(void *block)
{
    life.give(block);
    return NULL;
}

static long blocks_away(void)
{
    life.trim(0);
    return life_statistic("allocated_blocks");
}

static void first_call_frees(unsigned count)
{
    long before = blocks_away();
    for (unsigned i = 0; i < count; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, free_first, life.take(40)) || pthread_join(t, NULL))
            die("no thread");
    }
    long lost = blocks_away() - before;
    if (lost > (long)count / 8)
        die("%ld blocks more are away after %u threads that freed one each", lost, count);
}

/* --- children that end without a report ----------------------------------------------------------------- */

static void leave(unsigned how)
{
    char *const arguments[] = {"true", NULL}, *const environment[] = {NULL};
    if (how == 0)
        _exit(0);
    if (how == 1)
        execve("/bin/true", arguments, environment);
    if (how == 2)
        quick_exit(0);
    kill(getpid(), SIGKILL);
}

/* Opened through its descriptor: it has no other name. */
static bool shows_counters(void)
{
    char path[32], target[64];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (strstr(target, "memfd:hakmem.live"))
            return true;
    }
    return false;
}

static unsigned named_files(pid_t of)
{
    glob_t found;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "/dev/shm/*%d*", (int)of);
    unsigned n = glob(pattern, 0, NULL, &found) ? 0 : (unsigned)found.gl_pathc;
    globfree(&found);
    return n;
}

/* The counters appear at a slow path, some time after the child began. */
static void live_and_leave(unsigned how)
{
    unsigned before = named_files(getpid()); /* of another process with this id */
    for (unsigned i = 0; i < 30; i++) {
        life_traffic(200, i);
        usleep(1000);
    }
    if (!shows_counters())
        die("a child shows no live counters");
    if (named_files(getpid()) != before)
        die("the live counters have a name in /dev/shm");
    leave(how);
}

static void leaves_no_file(unsigned count)
{
    life_traffic(200, 1);
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0)
            live_and_leave(i % 4);
        int status;
        if (waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status)))
            die("a child failed");
    }
    if (!shows_counters())
        die("the parent shows no live counters");
}

const struct life_case life_ends[] = {
    {"exit_busy", exit_busy, 20},
    {"exit_ending", exit_ending, 20},
    {"threads_of_constructor", threads_of_constructor, 0},
    {"first_call_frees", first_call_frees, 2000},
    {"leaves_no_file", leaves_no_file, 8},
    {0},
};
