/* SPDX-License-Identifier: MIT
 * A block freed again after the thread that had allocated and freed it is gone, and its slabs are empty: it used so many
 * that they were its own. */
#include "misuse.h"

static void *take_and_free(void *arg)
{
    void **p = arg, *all[5000];
    for (unsigned i = 0; i < 5000; i++)
        all[i] = malloc(64);
    *p = announce(all[4000]);
    for (unsigned i = 0; i < 5000; i++)
        free(all[i]);
    return NULL;
}

int main(void)
{
    pthread_t t;
    void *p;
    pthread_create(&t, NULL, take_and_free, &p);
    pthread_join(t, NULL);
    free(p);
    return 0;
}
