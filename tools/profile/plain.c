/* SPDX-License-Identifier: MIT
 * See plain.h. A program without heaps never searches for them. */
#include "plain.h"

#include <dlfcn.h>

#include "core/base/words.h"

static void *next_of(_Atomic(void *) *known, const char *name)
{
    void *f = HAK_LOAD_RELAXED(known);
    if (HAK_UNLIKELY(!f))
        HAK_STORE_RELAXED(known, f = dlsym(RTLD_NEXT, name));
    return f;
}

/* The next library's function of this name. */
#define NEXT(name)                \
    static _Atomic(void *) known; \
    __typeof__(hakmem_##name) *f = (__typeof__(f))(uintptr_t)next_of(&known, "hakmem_" #name)

void *hak_plain_heap_malloc(hakmem_heap *heap, size_t size)
{
    NEXT(heap_malloc);
    return f(heap, size);
}

void *hak_plain_heap_calloc(hakmem_heap *heap, size_t count, size_t size)
{
    NEXT(heap_calloc);
    return f(heap, count, size);
}

void *hak_plain_heap_aligned_alloc(hakmem_heap *heap, size_t alignment, size_t size)
{
    NEXT(heap_aligned_alloc);
    return f(heap, alignment, size);
}

void hak_plain_heap_destroy(hakmem_heap *heap)
{
    NEXT(heap_destroy);
    f(heap);
}
