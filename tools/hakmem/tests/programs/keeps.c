/* SPDX-License-Identifier: MIT
 * keeps SIZE N [HOW]: allocates 64 MiB in blocks of SIZE bytes, then frees all but each N-th of them; all with 0. HOW:
 * "locked" locks all memory first, "thread" does it in a thread, of which the forked child that goes on knows nothing,
 * "fork" in the child. Trims for each byte that it reads, after it unlocked memory for "u". */
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t size = 1, every;
static sem_t done, never;

static void *work(void *waits)
{
    size_t n = ((size_t)64 << 20) / size;
    char **blocks = malloc(n * sizeof *blocks);
    for (size_t i = 0; i < n; i++)
        memset(blocks[i] = malloc(size), 1, size);
    for (size_t i = 0; i < n; i++)
        if (!every || i % every)
            free(blocks[i]);
    sem_post(&done);
    if (waits)
        sem_wait(&never);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 3 ? argv[3] : "";
    pthread_t thread;
    if (argc > 2)
        size = strtoul(argv[1], NULL, 10), every = strtoul(argv[2], NULL, 10);
    sem_init(&done, 0, 0);
    sem_init(&never, 0, 0);
    if (!strcmp(how, "locked") && mlockall(MCL_CURRENT | MCL_FUTURE))
        return 1;
    if (!strcmp(how, "thread") && (pthread_create(&thread, NULL, work, &done) || sem_wait(&done)))
        return 1;
    if ((!strcmp(how, "thread") || !strcmp(how, "fork")) && fork())
        return wait(NULL) < 0;
    if (strcmp(how, "thread"))
        work(NULL);
    int c;
    do {
        printf("%d\n", (int)getpid());
        fflush(stdout);
        c = getchar();
    } while (c != EOF && (c != 'u' || !munlockall()) && malloc_trim(0) >= 0);
    return 0;
}
