/* SPDX-License-Identifier: MIT
 *
 * damage HOW: memory written that is not the program's.
 *   over SIZE, under SIZE   the byte behind a block, or before it; then it and its neighbours are freed
 *   over-8 SIZE             eight bytes behind it
 *   use SIZE, read SIZE     a byte of the block itself, if it has one
 *   read-over SIZE          the 16th byte behind it is read
 *   shrunk SIZE             eight bytes behind a block that realloc has shrunk
 *   aligned SIZE            eight bytes behind a block of aligned_alloc
 *   cut SIZE                a byte that realloc has cut off is read
 *   freed SIZE              the first 16 bytes of a freed block, of which malloc then takes more
 *   freed-inside SIZE       a byte in the middle of it
 *   freed-reused SIZE       the same, after as many blocks were taken as there were
 *   freed-read SIZE         a byte of a freed block is read
 *   grown SIZE              a block that realloc has moved, by its old address
 *   cycle SIZE              a freed block's first word, so that it names itself
 *   sized SIZE, less SIZE   free_sized with twice the size, and with a quarter
 *   delete SIZE             C++'s sized delete, with twice the size
 *   moved SIZE              realloc of a block with eight bytes behind it written */
#include "misuse.h"

extern void sized_delete(void *, size_t) __asm__("_ZdlPvm") __attribute__((weak));
enum { SKIPPED = 77 };

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

static volatile char seen;

static void beside(const char *how, char *p, size_t usable)
{
    if (!strcmp(how, "under"))
        p[-1] ^= 0x5a;
    else
        memset(p + usable, 0x5a ^ p[usable], !strcmp(how, "over-8") ? 8 : 1);
    free_all(NULL);
}

static void after_free(const char *how, char *p, size_t size, size_t usable)
{
    free(p);
    if (!strcmp(how, "freed-read"))
        seen = p[usable / 2];
    else if (!strcmp(how, "freed"))
        memset(p, 0x41, 16);
    else if (!strcmp(how, "cycle"))
        *(void **)p = p;
    else if (!strcmp(how, "freed-inside"))
        p[usable / 2] = 0x41;
    else if (!strcmp(how, "freed-reused"))
        take_more(size), p[usable / 2] = 0x41;
    if (strcmp(how, "cycle"))
        take_more(size);
}

/* Behind a block of another call than malloc. */
static void behind(char *p)
{
    memset(p + malloc_usable_size(p), 0x5a, 8);
    free(announce(p));
}

/* False: there is no such damage. */
static int damage(const char *how, char *p, size_t size)
{
    size_t usable = malloc_usable_size(p);
    if (!strncmp(how, "over", 4) || !strcmp(how, "under"))
        beside(how, p, usable);
    else if (!strcmp(how, "read-over"))
        seen = p[usable + 15];
    else if (!strcmp(how, "shrunk"))
        behind(realloc(p, size / 4 * 3));
    else if (!strcmp(how, "aligned"))
        behind(aligned_alloc(64, size));
    else if (!strcmp(how, "cut"))
        announce(realloc(p, size / 4 * 3)), seen = p[size - 1];
    else if (!strcmp(how, "use"))
        p[size / 2] = 1;
    else if (!strcmp(how, "read"))
        seen = p[size / 2];
    else if (!strncmp(how, "freed", 5) || !strcmp(how, "cycle"))
        after_free(how, p, size, usable);
    else if (!strcmp(how, "grown"))
        announce(realloc(p, 4 * size)), p[usable / 2] = 0x41;
    else if (!strcmp(how, "sized") || !strcmp(how, "less"))
        free_sized(p, *how == 's' ? 2 * size : size / 4);
    else if (!strcmp(how, "delete") && !sized_delete)
        exit(SKIPPED); /* no C++ library is here */
    else if (!strcmp(how, "delete"))
        sized_delete(p, 2 * size);
    else if (!strcmp(how, "moved"))
        memset(p + usable, 0x5a, 8), announce(realloc(p, 4 * size));
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    size_t size = argc == 3 ? strtoul(argv[2], NULL, 0) : 0;
    take(size);
    return argc == 3 && damage(argv[1], block[BLOCKS / 2], size) ? passed() : 2;
}
