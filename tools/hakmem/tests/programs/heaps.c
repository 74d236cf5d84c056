/* SPDX-License-Identifier: MIT
 * Keeps blocks in heaps of the program, and in none; prints the bytes that live in the heaps "tenant" and "default",
 * and in none. Heaps "request" come and go with their blocks. No block is so short that its sample is no whole number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hakmem.h>

#define N 300

static size_t in_tenant, in_default, in_none;
static void *blocks[4 * N];

static hakmem_heap *heap(const char *name)
{
    return hakmem_heap_new(&(struct hakmem_heap_options){.name = name});
}

static void *check(void *p, size_t size, hakmem_heap *in)
{
    if (!p || hakmem_heap_of(p) != in)
        abort();
    return memset(p, 1, size);
}

__attribute__((noinline)) static void keeps(hakmem_heap *tenant, size_t size)
{
    void *p = hakmem_heap_calloc(tenant, 2, size / 2), *zero = calloc(1, size / 2 * 2);
    if (memcmp(p, zero, size / 2 * 2))
        abort();
    free(zero);
    static unsigned n;
    blocks[n++] = check(p, size / 2 * 2, tenant);
    blocks[n++] = check(hakmem_heap_aligned_alloc(tenant, 64, size), size, tenant);
    blocks[n++] = check(hakmem_heap_realloc(tenant, hakmem_heap_malloc(tenant, 10), size), size, tenant);
    blocks[n++] = check(hakmem_heap_realloc(tenant, NULL, size), size, tenant);
    hakmem_heap_free(tenant, check(hakmem_heap_malloc(tenant, size), size, tenant));
    free(check(hakmem_heap_malloc(tenant, size), size, tenant));
    in_tenant += size / 2 * 2 + 3 * size;
}

__attribute__((noinline)) static void answers(hakmem_heap *in)
{
    hakmem_heap *before = hakmem_heap_set_default(in);
    for (size_t size = 50; size < 50 + N; size++) {
        check(malloc(size), size, in);
        in_default += size;
    }
    hakmem_heap_set_default(before);
}

__attribute__((noinline)) static void requests(void)
{
    for (int i = 0; i < 50; i++) {
        hakmem_heap *request = heap("request");
        for (size_t size = 50; size < 150; size++)
            check(hakmem_heap_malloc(request, size), size, request);
        hakmem_heap_destroy(request);
    }
}

int main(void)
{
    static void *volatile none;
    hakmem_heap *tenant = heap("tenant"), *second = heap("tenant");
    for (size_t size = 1; size <= N; size++)
        keeps(size % 2 ? tenant : second, 50 + size * 7);
    answers(heap("default"));
    requests();
    in_none += 5000;
    none = check(malloc(5000), 5000, NULL);
    printf("%zu %zu %zu\n", in_tenant, in_default, in_none);
    fclose(stdout);
    return none == NULL;
}
