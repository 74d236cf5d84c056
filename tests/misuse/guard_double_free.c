/* SPDX-License-Identifier: MIT
 * A guarded block is freed twice. */
#include "misuse.h"

int main(void)
{
    void *p = announce(malloc(96));
    free(p);
    free(p);
    return 0;
}
