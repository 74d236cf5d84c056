/* SPDX-License-Identifier: MIT
 * A block too big for any cache freed twice. */
#include "misuse.h"

int main(void)
{
    void *p = announce(malloc(200000000));
    free(p);
    free(announce(p));
    return 0;
}
