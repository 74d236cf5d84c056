/* SPDX-License-Identifier: MIT
 *
 * Children and a grandchild, each of which takes small, pool and large blocks and gives them back, before and after
 * threads: every process makes system calls of its own. No thread runs while another one forks, so that each child
 * begins with a known ledger. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, BLOCKS = 4000 };

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

static void *grow_and_shrink(void *arg)
{
    static const size_t sizes[] = {48, 700, 5000, 20000, 300000, 3000000};
    size_t step = (size_t)arg;
    void **blocks = calloc(BLOCKS, sizeof(*blocks));
    if (!blocks)
        die("calloc");
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i * step % (i % 64 ? 3 : 6)];
        if (!(blocks[i] = malloc(size)))
            die("malloc");
        memset(blocks[i], 1, 64 < size ? 64 : size);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(blocks);
    void *big = malloc(40u << 20);
    big = realloc(big, 80u << 20);
    if (!big)
        die("realloc");
    free(big);
    return NULL;
}

static void in_thread(size_t step)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, grow_and_shrink, (void *)step) || pthread_join(thread, NULL))
        die("thread");
}

static void fork_and_wait(int generations)
{
    int status;
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        grow_and_shrink((void *)3);
        in_thread(5);
        if (generations > 1)
            fork_and_wait(generations - 1);
        exit(0);
    }
    if (waitpid(child, &status, 0) != child || status)
        die("child");
}

int main(void)
{
    in_thread(1);
    grow_and_shrink((void *)1);
    for (int i = 0; i < CHILDREN; i++) {
        fork_and_wait(i == 0 ? 2 : 1);
        in_thread(7);
    }
    return 0;
}
