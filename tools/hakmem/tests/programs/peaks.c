/* SPDX-License-Identifier: MIT
 * 5 MB stay, 30 MB come and go, then 10 MB more stay. */
#include <stdlib.h>

void *stay[100000], *gone[100000];

__attribute__((noinline)) static void stays(int from, int to)
{
    for (int i = from; i < to; i++)
        stay[i] = malloc(150);
}

__attribute__((noinline)) static void hump(void)
{
    for (int i = 0; i < 100000; i++)
        gone[i] = malloc(300);
    for (int i = 0; i < 100000; i++)
        free(gone[i]);
}

int main(void)
{
    stays(0, 33333);
    hump();
    stays(33333, 100000);
    return 0;
}
