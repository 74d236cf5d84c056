/* SPDX-License-Identifier: MIT
 * A byte written behind a small block, which is then freed by another thread. */
#include "misuse.h"

static void *free_it(void *p)
{
    free(p);
    return NULL;
}

int main(void)
{
    pthread_t t;
    char *p[64];
    for (int i = 0; i < 64; i++)
        p[i] = malloc(40);
    for (int i = 0; i < 64; i++) /* whichever of them has a neighbour behind it */
        p[i][malloc_usable_size(p[i])] = 0x55;
    for (int i = 0; i < 64; i++) {
        pthread_create(&t, NULL, free_it, p[i]);
        pthread_join(t, NULL);
    }
    return 0;
}
