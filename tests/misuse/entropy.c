/* SPDX-License-Identifier: MIT
 *
 * Prints the address of the first small block, then the mappings of the process. For entropy.py. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char line[512];
    void *p = malloc(39); /* of 48 bytes, with a header and a canary too */
    printf("%p\n", p);
    free(p);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return !maps;
}
