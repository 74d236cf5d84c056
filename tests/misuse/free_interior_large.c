/* SPDX-License-Identifier: MIT
 * A pointer into a large block, one page behind its start, freed. */
#include "misuse.h"

int main(void)
{
    char *p = malloc(5000000);
    memset(p, 0, 5000000);
    free(announce(p + 4096));
    return 0;
}
