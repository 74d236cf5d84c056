/* SPDX-License-Identifier: MIT
 * A block of 100 KB freed twice. */
#include "misuse.h"

int main(void)
{
    void *p = announce(malloc(100000));
    free(p);
    free(announce(p));
    return 0;
}
