/* SPDX-License-Identifier: MIT
 * Other names that glibc has for malloc's functions, which programs that wrap malloc look up. Each leads to the
 * library, so its blocks suit the usual names and the twins. hakmem_malloc_usable_size stops the process for a block
 * of another allocator. */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"

void *__libc_malloc(size_t size);
void __libc_free(void *ptr);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
int __posix_memalign(void **out, size_t alignment, size_t size);
void cfree(void *ptr);

static void expect(int holds, const char *what, size_t size)
{
    if (holds)
        return;
    fprintf(stderr, "%s, %zu bytes\n", what, size);
    exit(1);
}

static void *ours(void *p, size_t size, size_t alignment, const char *call)
{
    expect(p && hakmem_malloc_usable_size(p) >= size && (uintptr_t)p % alignment == 0, call, size);
    return memset(p, 1, size);
}

static void each(size_t size)
{
    static const char zeros[100000];
    void *p = NULL;
    free(ours(__libc_malloc(size), size, 16, "__libc_malloc"));
    __libc_free(ours(malloc(size), size, 16, "malloc"));
    expect(!memcmp(p = __libc_calloc(1, size), zeros, size), "__libc_calloc is not zero", size);
    cfree(ours(p, size, 16, "__libc_calloc"));
    p = ours(__libc_realloc(NULL, size), size, 16, "__libc_realloc");
    p = ours(__libc_realloc(p, 3 * size), 3 * size, 16, "__libc_realloc");
    hakmem_free(ours(realloc(p, size), size, 16, "realloc"));
    free(ours(__libc_memalign(256, size), size, 256, "__libc_memalign"));
    free(ours(__libc_valloc(size), size, 4096, "__libc_valloc"));
    free(ours(__libc_pvalloc(size), (size + 4095) / 4096 * 4096, 4096, "__libc_pvalloc"));
    expect(__posix_memalign(&p, 512, size) == 0, "__posix_memalign", size);
    free(ours(p, size, 512, "__posix_memalign"));
}

int main(void)
{
    static const size_t sizes[] = {1, 16, 100, 1000, 10000, 60000, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        each(sizes[i]);
    errno = 0;
    expect(!__libc_malloc(PTRDIFF_MAX) && errno == ENOMEM, "__libc_malloc of too much", PTRDIFF_MAX);
    return 0;
}
