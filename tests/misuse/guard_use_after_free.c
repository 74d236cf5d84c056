/* SPDX-License-Identifier: MIT
 * A guarded block is written to after free. */
#include "misuse.h"

int main(void)
{
    volatile char *p = announce(malloc(96));
    free((void *)p);
    p[5] = 1;
    return 0;
}
