/* SPDX-License-Identifier: MIT
 * A byte behind a guarded block is written. */
#include "misuse.h"

int main(void)
{
    char *p = malloc(96), *q = malloc(96); /* blocks lie at the end of their pages and at the beginning in turn */
    volatile char *at_end = announce((uintptr_t)p % 4096 ? p : q);
    at_end[96] = 1;
    return 0;
}
