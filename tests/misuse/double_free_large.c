/* SPDX-License-Identifier: MIT
 * A block of 5 MB freed twice. */
#include "misuse.h"

int main(void)
{
    void *p = announce(malloc(5000000));
    free(p);
    free(announce(p));
    return 0;
}
