/* What a heap profile must find: `keeps` holds 24 MB in blocks of 240 bytes, `drops` frees 48 MB in blocks of 4800
 * bytes, `grows` holds one block of 8 MB, by realloc, and a thread holds 6 MB. With an argument a child is forked,
 * which keeps 12 MB more; "wait" waits for the end of its input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile sink;
static void *kept[100000], *more[50000], *of_thread[25000];

__attribute__((noinline)) static void keeps(void **where, int n)
{
    for (int i = 0; i < n; i++)
        where[i] = malloc(240);
}

__attribute__((noinline)) static void drops(void)
{
    for (int i = 0; i < 10000; i++) {
        sink = calloc(1, 4800);
        free(sink);
    }
}

__attribute__((noinline)) static void *grows(void)
{
    void *p = NULL;
    for (size_t size = 1000000; size <= 8000000; size += 1000000)
        p = realloc(p, size);
    return p;
}

static void *threads_own(void *unused)
{
    keeps(of_thread, 25000);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    keeps(kept, 100000);
    drops();
    sink = grows();
    pthread_create(&thread, NULL, threads_own, NULL);
    pthread_join(thread, NULL);
    if (argc > 1 && !strcmp(argv[1], "wait")) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF)
            keeps(more, 50000);
    } else if (argc > 1) {
        if (fork() == 0) {
            keeps(more, 50000);
            for (int i = 0; i < 100000; i++)
                free(kept[i]);
            _exit(0);
        }
        wait(NULL);
    }
    return 0;
}
