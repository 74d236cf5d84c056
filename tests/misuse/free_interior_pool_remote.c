/* SPDX-License-Identifier: MIT
 * A pointer into a block of 20 KiB freed by another thread. */
#include "misuse.h"

static void *free_it(void *p)
{
    free(announce((char *)p + 4096));
    return NULL;
}

int main(void)
{
    pthread_t t;
    void *p = malloc(20480);
    memset(p, 0, 20480);
    pthread_create(&t, NULL, free_it, p);
    pthread_join(t, NULL);
    return 0;
}
