/* SPDX-License-Identifier: MIT
 * Many small blocks freed twice: the second time comes back through drains. */
#include "misuse.h"

enum { BLOCKS = 50000 };

int main(void)
{
    static void *p[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        p[i] = malloc(64);
    for (int i = 0; i < 2 * BLOCKS; i++)
        free(p[i % BLOCKS]);
    return 0;
}
