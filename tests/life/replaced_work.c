/* SPDX-License-Identifier: MIT
 * A program for replaced.py: it allocates, in threads and children, while another library has replaced functions.
 * Prints how many calls those had. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 300 };

unsigned long replaced_calls(void) __attribute__((weak));

static void *work(void *arg)
{
    static const size_t sizes[] = {16, 100, 700, 5000, 20000, 60000, 300000, 3 << 20};
    void *p[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        p[i] = i % 3 ? malloc(sizes[i * 7 % 8]) : calloc(1, sizes[i % 8]);
        memset(p[i], 1, 16);
        if (i % 5 == 0)
            p[i] = realloc(p[i], sizes[(i + 3) % 8]);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(p[i * 7 % BLOCKS]);
    free(malloc(40 << 20));
    malloc_trim(0);
    return arg;
}

int main(void)
{
    pthread_t threads[2];
    int status = 1;
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    work(NULL);
    pid_t child = fork();
    if (child == 0) {
        work(NULL);
        exit(0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    malloc_info(0, stderr);
    waitpid(child, &status, 0);
    printf("%lu\n", replaced_calls ? replaced_calls() : 0);
    return status;
}
