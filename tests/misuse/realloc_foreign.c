/* SPDX-License-Identifier: MIT
 * realloc of a static object. */
#include "misuse.h"

static char object[4096] __attribute__((aligned(4096)));

int main(void)
{
    char *p = realloc(announce(object), 10000);
    return p == NULL;
}
