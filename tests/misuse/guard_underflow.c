/* SPDX-License-Identifier: MIT
 * The byte before a guarded block is written. */
#include "misuse.h"

int main(void)
{
    volatile char *p = announce(malloc(96)); /* blocks lie at the end of their pages and at the beginning in turn */
    volatile char *q = announce(malloc(96));
    ((uintptr_t)p % 4096 ? q : p)[-1] = 1;
    return 0;
}
