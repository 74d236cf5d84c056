/* SPDX-License-Identifier: MIT
 * The address of a static object freed. */
#include "misuse.h"

static char object[1 << 17] __attribute__((aligned(1 << 16)));

int main(void)
{
    free(announce(object));
    return object[0];
}
