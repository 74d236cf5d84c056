/* SPDX-License-Identifier: MIT
 * keeps SIZE N: allocates 64 MiB in blocks of SIZE bytes, then frees all but each N-th of them; all with 0. Trims for
 * each byte that it reads. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    size_t size = argc > 2 ? strtoul(argv[1], NULL, 10) : 1, every = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    size_t n = ((size_t)64 << 20) / size;
    char **blocks = malloc(n * sizeof *blocks);
    for (size_t i = 0; i < n; i++)
        memset(blocks[i] = malloc(size), 1, size);
    for (size_t i = 0; i < n; i++)
        if (!every || i % every)
            free(blocks[i]);
    do {
        puts("ready");
        fflush(stdout);
    } while (getchar() != EOF && malloc_trim(0) >= 0);
    return 0;
}
