/* SPDX-License-Identifier: MIT
 *
 * A block freed twice in a row, after other frees of its size, many or few: the second free does not return, whether
 * the block that came before it lies in a bin or returned to its slab at once. WHO frees it:
 *   own     the thread that allocated it
 *   other   another thread, which has used malloc
 *   fresh   another thread, which has not
 *   ended   another thread than the one that allocated it, which has ended
 *   moved   the thread that allocated it: realloc has freed it the first time
 * Each number of frees is tried in a process of its own. The threads stay on one CPU: a light thread knows the
 * last block of its CPU. */
#include "misuse.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 700, MOST_BYTES = 32 << 20, SECONDS = 60 };
static char *block[MOST + 1];
static size_t size;
static int before;
static const char *who;
static void *volatile moved;

static void *take(void *unused)
{
    for (int i = 0; i <= before; i++)
        block[i] = malloc(size);
    return unused;
}

static void *give(void *unused)
{
    if (strcmp(who, "fresh"))
        free(malloc(size));
    for (int i = 0; i < before; i++)
        free(block[i]);
    if (!strcmp(who, "moved")) {
        char *wall = malloc(size);
        moved = realloc(block[before], 4 * size + 100000);
        if (moved == block[before]) /* it grew */
            free(moved);
        free(block[before]);
        free(wall);
        return unused;
    }
    free(block[before]);
    free(block[before]);
    return unused;
}

static void in_thread(void *(*work)(void *))
{
    pthread_t t;
    pthread_create(&t, NULL, work, NULL);
    pthread_join(t, NULL);
}

static void misuse(void)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(sched_getcpu(), &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    if (!strcmp(who, "ended"))
        in_thread(take);
    else
        take(NULL);
    if (!strcmp(who, "own") || !strcmp(who, "moved"))
        give(NULL);
    else
        in_thread(give);
}

/* The child's stderr, as one string. */
static int run(char *said, size_t room)
{
    int ends[2], status;
    size_t n = 0;
    if (pipe(ends))
        return -1;
    pid_t child = fork();
    if (!child) {
        alarm(SECONDS);
        dup2(ends[1], STDERR_FILENO);
        close(STDOUT_FILENO);
        misuse();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; n < room - 1 && (got = read(ends[0], said + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    return waitpid(child, &status, 0) == child ? status : -1;
}

/* One line, which says what was done. */
static int is_line(const char *said)
{
    const char *end = strchr(said, '\n');
    return end && !end[1] &&
           (strstr(said, "hakmem: double free") == said || strstr(said, "hakmem: invalid free") == said);
}

/* How many double frees are not detected. */
static int try_all(void)
{
    char said[400];
    int bad = 0;
    for (before = 0; before <= MOST && (before < 4 || (size_t)before * size <= MOST_BYTES);) {
        int status = run(said, sizeof said);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !is_line(said)) {
            printf("%s, %zu bytes, after %d frees: status 0x%x, %s\n", who, size, before, (unsigned)status,
                   *said ? said : "and no line");
            bad++;
        }
        before += before < 20 ? 1 : before < 140 ? 5 : 23;
    }
    return bad;
}

int main(void)
{
    static const char *const whos[] = {"own", "other", "fresh", "ended", "moved"};
    static const size_t sizes[] = {16, 64, 200, 5000, 20000, 52000, 100000, 5000000};
    int bad = 0;
    for (size_t i = 0; i < sizeof whos / sizeof *whos; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            who = whos[i];
            size = sizes[k];
            bad += try_all();
        }
    printf("%d were not seen\n", bad);
    return bad != 0;
}
