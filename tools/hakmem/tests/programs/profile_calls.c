/* Each call of malloc's family, in `makes_all`, which keeps what it makes, and in `takes_all`, which keeps nothing.
 * Prints the bytes kept, and fails where a block is not as it should be. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void free_sized(void *, size_t) __attribute__((weak));

static size_t kept;
static void *volatile blocks[16];

static void *check(void *p, size_t size, size_t align)
{
    if (!p || (uintptr_t)p % align || malloc_usable_size(p) < size)
        abort();
    memset(p, 1, size);
    kept += size;
    return p;
}

static void *grown(void *p, size_t from, size_t to)
{
    char *q = check(realloc(p, to), to, 16);
    kept -= from;
    return q;
}

__attribute__((noinline)) static void makes_all(void)
{
    void *p;
    char *zeroed = calloc(3, 100);
    for (int i = 0; i < 300; i++)
        if (zeroed[i])
            abort();
    blocks[0] = check(malloc(100), 100, 16);
    blocks[1] = check(zeroed, 300, 16);
    blocks[2] = check(aligned_alloc(64, 640), 640, 64);
    blocks[3] = check(memalign(32768, 5), 5, 32768);
    if (posix_memalign(&p, 16384, 1000))
        abort();
    blocks[4] = check(p, 1000, 16384);
    blocks[5] = check(valloc(10), 10, 4096);
    blocks[6] = check(pvalloc(10), 10, 4096);
    blocks[7] = grown(check(malloc(50), 50, 16), 50, 100000);
    blocks[8] = grown(check(malloc(200000), 200000, 16), 200000, 40);
    blocks[9] = check(reallocarray(NULL, 7, 70), 490, 16);
    if (realloc(blocks[0], (size_t)1 << 62)) /* the block stays */
        abort();
    if (*(char *)blocks[0] != 1)
        abort();
}

__attribute__((noinline)) static void takes_all(void)
{
    blocks[10] = malloc(100);
    free(blocks[10]);
    blocks[10] = realloc(malloc(10), 3000);
    if (realloc(blocks[10], 0))
        abort();
    blocks[10] = calloc(4, 4000);
    free_sized ? free_sized(blocks[10], 16000) : free(blocks[10]);
    blocks[10] = malloc(1 << 20);
    free(blocks[10]);
}

int main(void)
{
    makes_all();
    takes_all();
    printf("%zu\n", kept);
    return 0;
}
