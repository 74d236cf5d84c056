/* SPDX-License-Identifier: MIT
 * The C library's names, for programs that find this library where they expect libjemalloc.so.2: each call goes to
 * hakmem's. So do mallocx and its kin, since src/api/mallocx.c calls these names. Once a program has asked for a
 * thread's counters, these functions count, by usable bytes; until then they only test that. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "jemalloc.h"

bool je_counting;

static __attribute__((noinline)) void *count(void *p)
{
    if (!p)
        return NULL;
    je_self.allocated += hakmem_malloc_usable_size(p);
    int64_t now = (int64_t)(je_self.allocated - je_self.freed - je_self.base);
    if (now > (int64_t)je_self.peak)
        je_self.peak = (uint64_t)now;
    return p;
}

void *je_counted(void *p)
{
    return JE_UNLIKELY(je_counting) ? count(p) : p;
}

/* Passes a call on; counted only then, so that it costs a test and a jump until then. */
#define COUNTED(call) (JE_UNLIKELY(je_counting) ? count(call) : (call))

static void count_free(void *p)
{
    je_self.freed += hakmem_malloc_usable_size(p);
}

/* Not in all C libraries' headers. */
void *pvalloc(size_t size);
int malloc_trim(size_t pad);
void malloc_stats(void);
int malloc_info(int options, FILE *stream);
int mallopt(int parameter, int value);
void cfree(void *ptr);
void free_sized(void *ptr, size_t size);
void free_aligned_sized(void *ptr, size_t alignment, size_t size);

JE_EXPORT void *malloc(size_t size)
{
    return COUNTED(hakmem_malloc(size));
}

JE_EXPORT void free(void *ptr)
{
    if (JE_UNLIKELY(je_counting))
        count_free(ptr);
    hakmem_free(ptr);
}

JE_EXPORT void *calloc(size_t number, size_t size)
{
    return COUNTED(hakmem_calloc(number, size));
}

JE_EXPORT void *realloc(void *ptr, size_t size)
{
    if (!JE_UNLIKELY(je_counting))
        return hakmem_realloc(ptr, size);
    size_t before = hakmem_malloc_usable_size(ptr);
    void *p = hakmem_realloc(ptr, size);
    if (p || !size)
        je_self.freed += before;
    return count(p);
}

JE_EXPORT void *reallocarray(void *ptr, size_t number, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(number, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(ptr, total);
}

JE_EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
    int error = hakmem_posix_memalign(out, alignment, size);
    if (JE_UNLIKELY(je_counting) && !error)
        count(*out);
    return error;
}

JE_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return COUNTED(hakmem_aligned_alloc(alignment, size));
}

JE_EXPORT void *memalign(size_t alignment, size_t size)
{
    return COUNTED(hakmem_memalign(alignment, size));
}

JE_EXPORT void *valloc(size_t size)
{
    return COUNTED(hakmem_valloc(size));
}

JE_EXPORT void *pvalloc(size_t size)
{
    return COUNTED(hakmem_pvalloc(size));
}

JE_EXPORT void free_sized(void *ptr, size_t size)
{
    if (JE_UNLIKELY(je_counting))
        count_free(ptr);
    hakmem_free_sized(ptr, size);
}

JE_EXPORT void free_aligned_sized(void *ptr, size_t alignment, size_t size)
{
    if (JE_UNLIKELY(je_counting))
        count_free(ptr);
    hakmem_free_aligned_sized(ptr, alignment, size);
}

JE_EXPORT void cfree(void *ptr)
{
    free(ptr);
}

JE_EXPORT size_t malloc_usable_size(void *ptr)
{
    return hakmem_malloc_usable_size(ptr);
}

JE_EXPORT int malloc_trim(size_t pad)
{
    return hakmem_malloc_trim(pad);
}

JE_EXPORT void malloc_stats(void)
{
    hakmem_malloc_stats();
}

JE_EXPORT int malloc_info(int options, FILE *stream)
{
    return hakmem_malloc_info(options, stream);
}

JE_EXPORT int mallopt(int parameter, int value)
{
    return hakmem_mallopt(parameter, value);
}
