/* SPDX-License-Identifier: MIT
 * The last page of a large block, 16 bytes into it, freed. */
#include "misuse.h"

int main(void)
{
    char *p = malloc(1 << 20);
    memset(p, 0, 1 << 20);
    free(announce(p + (1 << 20) - 4096 + 16));
    return 0;
}
