/* SPDX-License-Identifier: MIT
 * Allocates and frees once. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char *block = malloc(100);
    block[0] = 1;
    int code = block[0] - 1;
    free(block);
    return code;
}
