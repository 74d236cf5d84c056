/* SPDX-License-Identifier: MIT
 * A guarded block is freed by an address within it. */
#include "misuse.h"

int main(void)
{
    char *p = malloc(96);
    free(announce(p + 16));
    return 0;
}
