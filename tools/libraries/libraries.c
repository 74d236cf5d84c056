/* SPDX-License-Identifier: MIT
 * libhakmem-libraries.so: the memory of each shared object in a heap of its own. Loaded before libhakmem.so, it
 * interposes what allocates: the block goes to a heap that is named like the object which holds the return address.
 * free, realloc and the others find a block's heap by its address, so they are hakmem's own, or the profile's, which
 * interposes hakmem_heap_*, too. What the C library allocates for a program (strdup, getline, fopen) counts as the C
 * library's; operator new counts as its caller's, but its forms with nothrow as the C++ library's. Code that lies in no
 * object allocates outside of heaps. An object that is loaded in the place of another one may inherit its heap. */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "api/hakmem.h"
#include "core/base/words.h"

#define HERE __builtin_return_address(0)
#define MOST ((size_t)1 << 31) /* larger blocks are in no heap */
#define OBJECTS 1024u          /* a power of two; further ones have no heap */

static int (*find_object)(void *address, struct dl_find_object *result); /* NULL: none, or not yet */

/* glibc has it since 2.35. A reference to it would keep this library from loading where it is not. */
__attribute__((constructor)) static void find_finder(void)
{
    find_object = (int (*)(void *, struct dl_find_object *))(uintptr_t)dlsym(RTLD_DEFAULT, "_dl_find_object");
}

static struct object {
    _Atomic(uintptr_t) start; /* of its mappings; 0: a free place */
    _Atomic(hakmem_heap *) heap;
} objects[OBJECTS];

/* The object that called last in this thread. */
static __thread struct {
    uintptr_t start;
    size_t size;
    hakmem_heap *heap;
} last __attribute__((tls_model("initial-exec")));

static const char *base_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

static hakmem_heap *heap_named_like(struct object *o, const struct link_map *map)
{
    const char *path = map->l_name[0] ? map->l_name : (const char *)getauxval(AT_EXECFN);
    hakmem_heap *none = NULL, *made = hakmem_heap_new(&(struct hakmem_heap_options){.name = base_of(path)});
    if (!made || atomic_compare_exchange_strong(&o->heap, &none, made))
        return made;
    hakmem_heap_destroy(made); /* another thread was faster */
    return none;
}

static HAK_NOINLINE hakmem_heap *find_heap(void *caller)
{
    struct dl_find_object found;
    if (!find_object || find_object(caller, &found)) /* takes no lock */
        return NULL;
    uintptr_t start = (uintptr_t)found.dlfo_map_start, is = 0;
    for (size_t i = start >> 12, n = 0; n < OBJECTS; i++, n++, is = 0) {
        struct object *o = &objects[i % OBJECTS];
        if (HAK_LOAD_RELAXED(&o->start) != start && !atomic_compare_exchange_strong(&o->start, &is, start) &&
            is != start)
            continue;
        hakmem_heap *heap = HAK_LOAD_ACQUIRE(&o->heap);
        if (!heap && !(heap = heap_named_like(o, found.dlfo_link_map)))
            return NULL;
        last.start = start;
        last.size = (uintptr_t)found.dlfo_map_end - start;
        last.heap = heap;
        return heap;
    }
    return NULL;
}

/* NULL: none. */
HAK_INLINE hakmem_heap *heap_for(void *caller, size_t size)
{
    if (HAK_UNLIKELY(size >= MOST))
        return NULL;
    return HAK_LIKELY((uintptr_t)caller - last.start < last.size) ? last.heap : find_heap(caller);
}

HAK_INLINE void *take_for(size_t size, void *caller)
{
    hakmem_heap *heap = heap_for(caller, size);
    return HAK_LIKELY(heap) ? hakmem_heap_malloc(heap, size) : hakmem_malloc(size);
}

HAK_INLINE void *take_aligned_for(size_t alignment, size_t size, void *caller)
{
    hakmem_heap *heap = heap_for(caller, size | alignment);
    return HAK_LIKELY(heap) ? hakmem_heap_aligned_alloc(heap, alignment, size) : hakmem_aligned_alloc(alignment, size);
}

/* --- malloc and its family -------------------------------------------------------------------------------- */

HAK_EXPORT void *malloc(size_t size)
{
    return take_for(size, HERE);
}

HAK_EXPORT void *calloc(size_t n, size_t size)
{
    size_t total;
    hakmem_heap *heap = __builtin_mul_overflow(n, size, &total) ? NULL : heap_for(HERE, total);
    return HAK_LIKELY(heap) ? hakmem_heap_calloc(heap, n, size) : hakmem_calloc(n, size);
}

HAK_EXPORT void *realloc(void *old, size_t size)
{
    return HAK_LIKELY(old) ? hakmem_heap_realloc(NULL, old, size) : take_for(size, HERE);
}

HAK_EXPORT void *reallocarray(void *old, size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total))
        return hakmem_reallocarray(old, n, size);
    return old ? hakmem_heap_realloc(NULL, old, total) : take_for(total, HERE);
}

HAK_EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
    int saved = errno, error = 0;
    hakmem_heap *heap = heap_for(HERE, size | alignment);
    if (!heap || !alignment || alignment % sizeof(void *) || alignment & (alignment - 1))
        return hakmem_posix_memalign(out, alignment, size);
    void *p = hakmem_heap_aligned_alloc(heap, alignment, size);
    if (p)
        *out = p;
    else
        error = ENOMEM;
    errno = saved;
    return error;
}

HAK_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return take_aligned_for(alignment, size, HERE);
}

HAK_EXPORT void *memalign(size_t alignment, size_t size)
{
    return alignment & (alignment - 1) ? hakmem_memalign(alignment, size) : take_aligned_for(alignment, size, HERE);
}

/* --- operator new ------------------------------------------------------------------------------------------- */

/* What throws, or calls the new handler: the operator of the C++ library. */
static HAK_COLD void *(*next_of(const char *name))(size_t, size_t, void *)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f)
        abort();
    return (void *(*)(size_t, size_t, void *))(uintptr_t)f;
}

#define OPERATOR(name, symbol)                                  \
    HAK_EXPORT void *name(size_t size) __asm__(symbol);         \
    void *name(size_t size)                                     \
    {                                                           \
        void *p = take_for(size, HERE);                         \
        return HAK_LIKELY(p) ? p : next_of(symbol)(size, 0, 0); \
    }
#define OPERATOR_ALIGNED(name, symbol)                                    \
    HAK_EXPORT void *name(size_t size, size_t alignment) __asm__(symbol); \
    void *name(size_t size, size_t alignment)                             \
    {                                                                     \
        void *p = take_aligned_for(alignment, size, HERE);                \
        return HAK_LIKELY(p) ? p : next_of(symbol)(size, alignment, 0);   \
    }
OPERATOR(new_one, "_Znwm")
OPERATOR(new_many, "_Znam")
OPERATOR_ALIGNED(new_one_aligned, "_ZnwmSt11align_val_t")
OPERATOR_ALIGNED(new_many_aligned, "_ZnamSt11align_val_t")
