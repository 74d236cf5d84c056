/* SPDX-License-Identifier: MIT
 * A pointer into a small block freed by another thread. */
#include "misuse.h"

static void *free_it(void *p)
{
    free(announce((char *)p + 48));
    return NULL;
}

int main(void)
{
    pthread_t t;
    void *p = malloc(160);
    memset(p, 0, 160);
    pthread_create(&t, NULL, free_it, p);
    pthread_join(t, NULL);
    return 0;
}
