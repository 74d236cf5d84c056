/* SPDX-License-Identifier: MIT
 * A pointer to the stack freed. */
#include "misuse.h"

int main(void)
{
    char here[64] __attribute__((aligned(16))) = "here";
    free(announce(here + 16));
    return here[0] == 'x';
}
