/* SPDX-License-Identifier: MIT
 *
 * damage HOW: memory written that is not the program's.
 *   over SIZE, under SIZE   the byte behind a block, or before it; then it and its neighbours are freed
 *   freed SIZE              the first 16 bytes of a freed block, of which malloc then takes more
 *   freed-inside SIZE       a byte in the middle of it
 *   cycle SIZE              a freed block's first word, so that it names itself
 *   sized SIZE              free_sized with twice the size */
#include "misuse.h"

#include <stddef.h>

enum { BLOCKS = 5 };
static char *block[BLOCKS];

static void take(size_t size)
{
    for (int i = 0; i < BLOCKS; i++)
        block[i] = memset(malloc(size), 1, size);
    announce(block[BLOCKS / 2]);
}

static void take_more(size_t size)
{
    for (int i = 0; i < BLOCKS; i++)
        announce(malloc(size));
}

static void *free_all(void *unused)
{
    for (int i = 0; i < BLOCKS; i++)
        free(block[i]);
    return unused;
}

int main(int argc, char **argv)
{
    const char *how = argc == 3 ? argv[1] : "";
    size_t size = argc == 3 ? strtoul(argv[2], NULL, 0) : 0;
    take(size);
    char *p = block[BLOCKS / 2];
    size_t usable = malloc_usable_size(p);
    if (!strcmp(how, "over") || !strcmp(how, "under")) {
        p[*how == 'o' ? (ptrdiff_t)usable : -1] ^= 0x5a;
        free_all(NULL);
    } else if (!strcmp(how, "freed") || !strcmp(how, "freed-inside") || !strcmp(how, "cycle")) {
        free(p);
        if (!strcmp(how, "freed"))
            memset(p, 0x41, 16);
        else if (!strcmp(how, "cycle"))
            *(void **)p = p;
        else
            p[usable / 2] = 0x41;
        if (strcmp(how, "cycle"))
            take_more(size);
    } else if (!strcmp(how, "sized")) {
        free_sized(p, 2 * size);
    } else {
        return 2;
    }
    return passed();
}
