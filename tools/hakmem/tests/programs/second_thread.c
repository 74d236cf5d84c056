/* SPDX-License-Identifier: MIT
 * Grows to some MiB in a second thread, gives half back, and leaves by _exit
 * where an argument is given. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *grow(void *unused)
{
    char *big = malloc(24 << 20), *small = malloc(8 << 20);
    memset(big, 1, 24 << 20);
    memset(small, 1, 8 << 20);
    usleep(15000); /* so that a sampler sees it */
    free(big);
    usleep(15000);
    return unused;
}

int main(int count, char **words)
{
    pthread_t thread;
    (void)words;
    pthread_create(&thread, 0, grow, 0);
    pthread_join(thread, 0);
    if (count > 1)
        _exit(0);
    return 0;
}
