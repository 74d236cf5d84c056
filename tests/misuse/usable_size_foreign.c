/* SPDX-License-Identifier: MIT
 * malloc_usable_size of a pointer to the stack. */
#include "misuse.h"

int main(void)
{
    char here[64] __attribute__((aligned(16))) = "here";
    return malloc_usable_size(announce(here)) == 1 || here[0] == 'x';
}
