/* SPDX-License-Identifier: MIT
 * A byte behind a guarded block is written. */
#include "misuse.h"

int main(void)
{
    volatile char *p = announce(malloc(96));
    p[96] = 1;
    return 0;
}
