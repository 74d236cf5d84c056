/* SPDX-License-Identifier: MIT
 * Frees 22 MiB and then makes no call for a while. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 700, SIZE = 32000 }; /* few: they are freed long before the delay of purges is over */

int main(void)
{
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(SIZE), 1, SIZE);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
    char *volatile last = malloc(1000); /* a trace ends with its last call */
    free(last);
    return 0;
}
