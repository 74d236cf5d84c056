/* SPDX-License-Identifier: MIT
 * Another thread's small block freed twice: hardened builds see it at once. */
#include "misuse.h"

static void *free_twice(void *p)
{
    void *mine = malloc(64);
    free(p);
    free(announce(p));
    return mine;
}

int main(void)
{
    pthread_t t;
    pthread_create(&t, NULL, free_twice, malloc(64));
    pthread_join(t, NULL);
    return 0;
}
