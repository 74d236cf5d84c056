/* SPDX-License-Identifier: MIT
 * A misaligned pointer to the stack freed. */
#include "misuse.h"

int main(void)
{
    char here[64] __attribute__((aligned(16))) = "here";
    free(announce(here + 3));
    return here[0] == 'x';
}
