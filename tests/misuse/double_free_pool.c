/* SPDX-License-Identifier: MIT
 * Blocks of 20 KiB freed twice: the second time comes back through drains. */
#include "misuse.h"

enum { BLOCKS = 2000 };

int main(void)
{
    static void *p[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        p[i] = malloc(20480);
    for (int i = 0; i < 2 * BLOCKS; i++)
        free(p[i % BLOCKS]);
    return 0;
}
