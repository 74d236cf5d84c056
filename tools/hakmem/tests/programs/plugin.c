/* SPDX-License-Identifier: MIT
 * An object that allocates when it is asked to. */
#include <stdlib.h>

void *volatile kept;

void plug(void)
{
    kept = malloc(100);
    free(kept);
}
