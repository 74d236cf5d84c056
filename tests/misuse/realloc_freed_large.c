/* SPDX-License-Identifier: MIT
 * realloc of a large block that was freed. */
#include "misuse.h"

int main(void)
{
    void *p = announce(malloc(5000000));
    free(p);
    p = realloc(announce(p), 6000000);
    return p == NULL;
}
