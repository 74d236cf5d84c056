/* SPDX-License-Identifier: MIT
 * libhakmem-tokens: the functions that programs call which clang 22 or later compiles with -fsanitize=alloc-token. Each
 * call names the type that it allocates by a token; with the mode typehashpointersplit, the default one, the upper half
 * of the tokens stands for types that contain pointers. In hardened builds blocks of such types lie in a heap of their
 * own, so a stale pointer to raw data never meets a pointer there, while pages have owners. Otherwise tokens mean
 * nothing. free takes all of these blocks. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "api/hakmem.h"

#define EXPORT __attribute__((visibility("default")))
#define HIDE static inline __attribute__((always_inline))

/* The program's -falloc-token-max, if it has one: it defines this variable with that value. */
EXPORT const size_t hakmem_token_max __attribute__((weak)) = 0;

/* --- where blocks come from -------------------------------------------------------------------------------- */

static _Atomic(hakmem_heap *) pointers;

static __attribute__((noinline)) hakmem_heap *make_heap(void)
{
    hakmem_heap *none = NULL, *made = hakmem_heap_new(
                                  &(struct hakmem_heap_options){.name = "types with pointers", .apart = TOKENS_APART});
    if (!made || atomic_compare_exchange_strong(&pointers, &none, made))
        return made;
    hakmem_heap_destroy(made);
    return none;
}

/* The heap for a token; NULL: the common one, also without memory. */
HIDE hakmem_heap *heap_of(size_t token)
{
    const volatile size_t *most = &hakmem_token_max; /* the program's */
    if (!TOKENS_APART || token < (*most ? *most : SIZE_MAX) / 2)
        return NULL;
    hakmem_heap *heap = atomic_load_explicit(&pointers, memory_order_acquire);
    return heap ? heap : make_heap();
}

/* A heap has no block of 4 GiB; the common one may have. */
HIDE bool is_apart(const hakmem_heap *heap, size_t size)
{
    return heap && size < (size_t)1 << 31;
}

HIDE void *allocate(size_t size, size_t token)
{
    hakmem_heap *heap = heap_of(token);
    return is_apart(heap, size) ? hakmem_heap_malloc(heap, size) : hakmem_malloc(size);
}

HIDE void *allocate_zeroed(size_t count, size_t size, size_t token)
{
    hakmem_heap *heap = heap_of(token);
    size_t total;
    bool apart = !__builtin_mul_overflow(count, size, &total) && is_apart(heap, total);
    return apart ? hakmem_heap_calloc(heap, count, size) : hakmem_calloc(count, size);
}

HIDE void *allocate_aligned(size_t alignment, size_t size, size_t token)
{
    hakmem_heap *heap = heap_of(token);
    return is_apart(heap, size) ? hakmem_heap_aligned_alloc(heap, alignment, size)
                                : hakmem_aligned_alloc(alignment, size);
}

/* A block stays where it was allocated, whatever the token says. */
HIDE void *resize(void *ptr, size_t size, size_t token)
{
    return ptr ? hakmem_realloc(ptr, size) : allocate(size, token);
}

HIDE void *resize_array(void *ptr, size_t count, size_t size, size_t token)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return resize(ptr, total, token);
}

HIDE int allocate_posix(void **out, size_t alignment, size_t size, size_t token)
{
    int before = errno;
    if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1))
        return EINVAL;
    void *p = allocate_aligned(alignment, size, token);
    errno = before;
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

HIDE void *allocate_memalign(size_t alignment, size_t size, size_t token)
{
    bool is_power = alignment && !(alignment & (alignment - 1));
    return is_power ? allocate_aligned(alignment, size, token) : hakmem_memalign(alignment, size);
}

/* --- the C library's names: __alloc_token_NAME with the token at the end, or __alloc_token_0_ and _1_NAME ------- */

#define WITH_TOKEN(result, name, parameters, how, ...)            \
    result __alloc_token_##name(__VA_ARGS__, size_t token);       \
    EXPORT result __alloc_token_##name(__VA_ARGS__, size_t token) \
    {                                                             \
        return how(TOKEN parameters, token);                      \
    }                                                             \
    FAST(0, 0, result, name, parameters, how, __VA_ARGS__)        \
    FAST(1, SIZE_MAX, result, name, parameters, how, __VA_ARGS__)
#define FAST(id, token, result, name, parameters, how, ...) \
    result __alloc_token_##id##_##name(__VA_ARGS__);        \
    EXPORT result __alloc_token_##id##_##name(__VA_ARGS__)  \
    {                                                       \
        return how(TOKEN parameters, token);                \
    }
#define TOKEN(...) __VA_ARGS__

WITH_TOKEN(void *, malloc, (size), allocate, size_t size)
WITH_TOKEN(void *, calloc, (count, size), allocate_zeroed, size_t count, size_t size)
WITH_TOKEN(void *, realloc, (ptr, size), resize, void *ptr, size_t size)
WITH_TOKEN(void *, reallocarray, (ptr, count, size), resize_array, void *ptr, size_t count, size_t size)
WITH_TOKEN(void *, aligned_alloc, (alignment, size), allocate_aligned, size_t alignment, size_t size)
WITH_TOKEN(void *, memalign, (alignment, size), allocate_memalign, size_t alignment, size_t size)
WITH_TOKEN(int, posix_memalign, (out, alignment, size), allocate_posix, void **out, size_t alignment, size_t size)

/* --- operator new: the C++ library's own one runs the new handler, and throws --------------------------------------
 */

#define ALIGNED(size, alignment, token) \
    (alignment <= 16 ? allocate(size, token) : allocate_aligned(alignment, size, token))
#define OPERATOR(name, block, arguments, ...)                                        \
    extern void *otherwise_##name(__VA_ARGS__) __asm__(#name) __attribute__((weak)); \
    void *__alloc_token_##name(__VA_ARGS__, size_t token);                           \
    EXPORT void *__alloc_token_##name(__VA_ARGS__, size_t token)                     \
    {                                                                                \
        void *p = block;                                                             \
        return p || !otherwise_##name ? p : otherwise_##name arguments;              \
    }                                                                                \
    void *__alloc_token_0_##name(__VA_ARGS__);                                       \
    EXPORT void *__alloc_token_0_##name(__VA_ARGS__)                                 \
    {                                                                                \
        return __alloc_token_##name(TOKEN arguments, 0);                             \
    }                                                                                \
    void *__alloc_token_1_##name(__VA_ARGS__);                                       \
    EXPORT void *__alloc_token_1_##name(__VA_ARGS__)                                 \
    {                                                                                \
        return __alloc_token_##name(TOKEN arguments, SIZE_MAX);                      \
    }

OPERATOR(_Znwm, allocate(size, token), (size), size_t size)
OPERATOR(_Znam, allocate(size, token), (size), size_t size)
OPERATOR(_ZnwmRKSt9nothrow_t, allocate(size, token), (size, tag), size_t size, const void *tag)
OPERATOR(_ZnamRKSt9nothrow_t, allocate(size, token), (size, tag), size_t size, const void *tag)
OPERATOR(_ZnwmSt11align_val_t, ALIGNED(size, align, token), (size, align), size_t size, size_t align)
OPERATOR(_ZnamSt11align_val_t, ALIGNED(size, align, token), (size, align), size_t size, size_t align)
OPERATOR(_ZnwmSt11align_val_tRKSt9nothrow_t, ALIGNED(size, align, token), (size, align, tag), size_t size, size_t align,
         const void *tag)
OPERATOR(_ZnamSt11align_val_tRKSt9nothrow_t, ALIGNED(size, align, token), (size, align, tag), size_t size, size_t align,
         const void *tag)
