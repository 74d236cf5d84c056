/* SPDX-License-Identifier: MIT
 *
 * Fills the table of names.h. TWINS chooses which set of names is tested.
 */
#include "names.h"

#include <stdlib.h>

#if TWINS
#define NAME(x) hakmem_##x
#define WORLD "hakmem_ names"
#else
#define NAME(x) x
#define WORLD "plain names"
/* C23; not declared by all C libraries with which this must build. */
void free_sized(void *ptr, size_t size);
void free_aligned_sized(void *ptr, size_t align, size_t size);
#ifndef __GLIBC__
/* The library provides functions that some C libraries lack. */
void *pvalloc(size_t size);
int malloc_trim(size_t pad);
int malloc_info(int options, FILE *out);
void malloc_stats(void);
int mallopt(int param, int value);
#endif
#if !defined __GLIBC__ || __GLIBC_MINOR__ < 33
struct hakmem_mallinfo2 mallinfo2(void);
#endif
#endif

struct names api = {
    .world = WORLD,
    .malloc = NAME(malloc),
    .free = NAME(free),
    .calloc = NAME(calloc),
    .realloc = NAME(realloc),
    .reallocarray = NAME(reallocarray),
    .posix_memalign = NAME(posix_memalign),
    .aligned_alloc = NAME(aligned_alloc),
    .memalign = NAME(memalign),
    .valloc = NAME(valloc),
    .pvalloc = NAME(pvalloc),
    .usable_size = NAME(malloc_usable_size),
    .free_sized = NAME(free_sized),
    .free_aligned_sized = NAME(free_aligned_sized),
    .malloc_trim = NAME(malloc_trim),
    .mallinfo2 = (struct hakmem_mallinfo2(*)(void))(void (*)(void))NAME(mallinfo2),
    .malloc_info = NAME(malloc_info),
    .malloc_stats = NAME(malloc_stats),
    .mallopt = NAME(mallopt),
};
