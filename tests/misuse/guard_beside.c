/* SPDX-License-Identifier: MIT
 * A byte between a guarded block and the end of its pages is written; free finds it. */
#include "misuse.h"

int main(void)
{
    char *p = announce(malloc(100)), *q = announce(malloc(100)); /* one of them has a gap behind it */
    p[100] = q[100] = 1;
    free(p);
    free(q);
    return 0;
}
