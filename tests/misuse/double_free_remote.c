/* SPDX-License-Identifier: MIT
 *
 * double_free_remote HOW SIZE: a block that one thread allocated and others free, twice in all.
 *   row      another thread frees it twice in a row
 *   apart    another thread frees it twice, with other blocks between
 *   both     another thread frees it, then its owner does
 *   others   two other threads free it
 *   ended    as `row`, of an owner that has ended
 * Blocks before and after it are freed, too, as the fault shows when they go home: at the latest when the program
 * trims its memory. */
#include "misuse.h"

#include "../watchdog.h"

enum { BLOCKS = 3000, VICTIM = 1500 };
static char *block[BLOCKS];
static size_t size;
static const char *how;

static void free_from(int from, int to)
{
    for (int i = from; i < to; i++)
        if (i != VICTIM)
            free(block[i]);
}

static void *other(void *twice)
{
    free(malloc(size));
    free_from(0, VICTIM);
    free(block[VICTIM]);
    if (twice && !strcmp(how, "apart"))
        free_from(VICTIM, VICTIM + 20);
    if (twice)
        free(block[VICTIM]);
    free_from(VICTIM + 20, BLOCKS);
    malloc_trim(0);
    return NULL;
}

static void *third(void *unused)
{
    free(block[VICTIM]);
    malloc_trim(0);
    return unused;
}

static void *owner(void *unused)
{
    for (int i = 0; i < BLOCKS; i++)
        block[i] = malloc(size);
    return unused;
}

static void in_thread(void *(*work)(void *), void *context)
{
    pthread_t t;
    pthread_create(&t, NULL, work, context);
    pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    watchdog_start(60);
    how = argv[1];
    size = strtoul(argv[2], NULL, 0);
    if (!strcmp(how, "ended"))
        in_thread(owner, NULL);
    else
        owner(NULL);
    int twice = strcmp(how, "both") && strcmp(how, "others");
    announce(block[VICTIM]);
    in_thread(other, twice ? &twice : NULL);
    if (!strcmp(how, "both"))
        free(block[VICTIM]);
    if (!strcmp(how, "others"))
        in_thread(third, NULL);
    for (int i = 0; i < 3; i++) {
        malloc_trim(0);
        for (int k = 0; k < BLOCKS; k++)
            block[k] = malloc(size);
        for (int k = 0; k < BLOCKS; k++)
            free(block[k]);
    }
    malloc_trim(0);
    return 0;
}
