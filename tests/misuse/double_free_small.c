/* SPDX-License-Identifier: MIT
 * A small block freed twice, with others in between: hardened builds see it at once. */
#include "misuse.h"

int main(void)
{
    void *p = malloc(64), *other = malloc(64);
    free(p);
    free(other);
    free(announce(p));
    return 0;
}
