/* SPDX-License-Identifier: MIT
 *
 * double_free_after_thread COUNT: a block freed again after the thread that had allocated and freed it, and others, is
 * gone, and its slabs are empty: its own if they were many, one that it shared if they were few. */
#include "misuse.h"

static void *victim;

static void *take_and_free(void *arg)
{
    void *all[5000];
    unsigned count = *(unsigned *)arg;
    for (unsigned i = 0; i < count; i++)
        all[i] = malloc(64);
    victim = announce(all[count / 2]);
    for (unsigned i = 0; i < count; i++)
        free(all[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t;
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 5000;
    pthread_create(&t, NULL, take_and_free, &count);
    pthread_join(t, NULL);
    free(victim);
    return 0;
}
