/* SPDX-License-Identifier: MIT
 * Keeps 8 MB in blocks of its own, of each function of the malloc family, and 4 MB in blocks that strdup made. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void *block(unsigned i)
{
    void *p = NULL;
    switch (i % 5) {
    case 0:
        return malloc(1000);
    case 1:
        return calloc(10, 100);
    case 2:
        return realloc(malloc(100), 1000);
    case 3:
        return aligned_alloc(64, 1024);
    default:
        return posix_memalign(&p, 32, 1000) ? NULL : p;
    }
}

int main(void)
{
    static char text[1000];
    memset(text, 'x', sizeof text - 1);
    for (unsigned i = 0; i < 12000; i++)
        if (!(i % 3 ? block(i) : strdup(text)))
            return 1;
    free(memset(malloc(40000000), 1, 40000000));
    return 0;
}
