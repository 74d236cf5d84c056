/* SPDX-License-Identifier: MIT
 * resize_low realloc|realloc-0|malloc_usable_size: of a member of a null pointer. */
#include "misuse.h"

int main(int argc, char **argv)
{
    free(malloc(100));
    void *p = announce((void *)24);
    if (argc > 1 && !strcmp(argv[1], "malloc_usable_size"))
        return (int)malloc_usable_size(p);
    return realloc(p, argc > 1 && !strcmp(argv[1], "realloc-0") ? 0 : 100) != NULL;
}
