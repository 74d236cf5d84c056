/* SPDX-License-Identifier: MIT
 *
 * pair COUNT SIZE SLOTS: COUNT times the oldest of SLOTS blocks of SIZE bytes
 * is freed and a new one taken. Run under callgrind by fast_path.py. The calls
 * go through pointers, so that what is counted outside this program's own code
 * is the allocator and nothing else.
 */
#include <stdlib.h>

static void *(*volatile take)(size_t) = malloc;
static void (*volatile give)(void *) = free;

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    unsigned long count = strtoul(argv[1], NULL, 10), size = strtoul(argv[2], NULL, 10);
    unsigned long slots = strtoul(argv[3], NULL, 10), at = 0;
    void **p = calloc(slots, sizeof(*p));
    if (p == NULL)
        return 1;
    for (unsigned long i = 0; i < slots; i++)
        p[i] = take(size);
    for (unsigned long i = 0; i < count; i++) {
        give(p[at]);
        p[at] = take(size);
        at = at + 1 == slots ? 0 : at + 1;
    }
    return 0;
}
