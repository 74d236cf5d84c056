/* SPDX-License-Identifier: MIT
 * One fault of a program, by name: what memcheck must find in a block of each kind. `nothing` uses all parts of the
 * library and does nothing wrong. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hakmem.h"

static volatile char sink;
static char *volatile first, *volatile block;
static size_t size;

static void behind(void)
{
    sink = block[size];
}

static void before(void)
{
    block[-1] = 1;
}

static void after_free(void)
{
    free(block);
    sink = block[0];
}

static void old_address(void)
{
    char *volatile old = block;
    block = realloc(block, size + 1);
    sink = old[0];
}

static void undefined(void)
{
    if (block[size / 2])
        sink = 1;
}

static void leak(void)
{
    block = NULL;
}

static void *work(void *unused)
{
    for (int round = 0; round < 2; round++) {
        char *blocks[600];
        for (int i = 0; i < 600; i++) {
            size_t n = 1 + (size_t)i * (i % 50 ? 7 : 700);
            blocks[i] = i % 3 ? malloc(n) : calloc(1, n);
            memset(blocks[i], 1, malloc_usable_size(blocks[i]));
        }
        for (int i = 0; i < 600; i += 2)
            blocks[i] = realloc(blocks[i], (size_t)i + 1);
        for (int i = 0; i < 600; i++)
            free(blocks[i]);
    }
    return unused;
}

static void nothing(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            exit(1);
    free(memset(aligned_alloc(4096, 100), 1, 100));
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pid_t child = fork();
    work(NULL);
    hakmem_trim(0);
    if (child == 0)
        return; /* and the child ends as its parent does */
    int status;
    if (waitpid(child, &status, 0) != child || status)
        exit(1);
}

static const struct {
    const char *name;
    void (*run)(void);
    int frees;
} faults[] = {
    {"behind", behind, 1},       {"before", before, 1}, {"after_free", after_free, 0}, {"old_address", old_address, 1},
    {"undefined", undefined, 1}, {"leak", leak, 0},     {"nothing", nothing, 1},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    size = strtoul(argv[2], NULL, 10);
    first = malloc(size); /* the library's own variables name the first place */
    block = malloc(size);
    if (!first || !block || malloc_usable_size(block) != size)
        return 1;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (!strcmp(faults[i].name, argv[1])) {
            faults[i].run();
            if (faults[i].frees)
                free(block);
            free(first);
            return 0;
        }
    return 2;
}
