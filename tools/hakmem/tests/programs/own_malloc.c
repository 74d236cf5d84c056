/* SPDX-License-Identifier: MIT
 * A program that brings its own malloc: no preload can come before it. */
#include <stdlib.h>
#include <string.h>

static _Alignas(16) char arena[1 << 20];
static size_t used;

void *malloc(size_t size)
{
    void *block = arena + used;
    used += (size + 15) & ~(size_t)15;
    return block;
}

void free(void *block)
{
    (void)block;
}
void *calloc(size_t count, size_t size)
{
    return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    if (block)
        memcpy(moved, block, size);
    return moved;
}

int main(void)
{
    free(malloc(100));
    return 0;
}
