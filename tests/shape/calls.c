/* SPDX-License-Identifier: MIT
 *
 * calls COUNT: each function below makes the calls that it is named for COUNT times. calls.py runs this under callgrind
 * and reads the cost of each function's calls. The calls go through pointers, so nothing of this program is counted.
 * The clock stands still (the linker puts it in place of hak_clock_ms), so each run has the same counts. */
#include <stdint.h>
#include <stdlib.h>

#include "hakmem.h"

uint64_t __wrap_hak_clock_ms(void);

static void *(*volatile take)(size_t) = hakmem_malloc;
static void *(*volatile take_zeroed)(size_t, size_t) = hakmem_calloc;
static void *(*volatile take_aligned)(size_t, size_t) = hakmem_aligned_alloc;
static int (*volatile take_posix)(void **, size_t, size_t) = hakmem_posix_memalign;
static void *(*volatile resize)(void *, size_t) = hakmem_realloc;
static size_t (*volatile usable)(void *) = hakmem_malloc_usable_size;
static void (*volatile give)(void *) = hakmem_free;

static void *(*volatile take_in)(hakmem_heap *, size_t) = hakmem_heap_malloc;
static void (*volatile give_in)(hakmem_heap *, void *) = hakmem_heap_free;

static hakmem_heap *heap;
static void *small, *large, *p, *many[100];

uint64_t __wrap_hak_clock_ms(void)
{
    return 1000000;
}

/* Pairs of a class of its own, from a bin whose length follows from how many blocks were in use at a time before. */
#define PAIR(spare) X(pair_##spare, spare, give(take(64 + 32 * (spare % 17))))
#define KINDS(X)                                                     \
    PAIR(1)                                                          \
    PAIR(2)                                                          \
    PAIR(3)                                                          \
    PAIR(5)                                                          \
    PAIR(9)                                                          \
    PAIR(33)                                                         \
    PAIR(62)                                                         \
    PAIR(63)                                                         \
    PAIR(64)                                                         \
    PAIR(100)                                                        \
    X(heap_malloc_free, 0, give(take_in(heap, 64)))                  \
    X(heap_malloc_heap_free, 0, give_in(heap, take_in(heap, 64)))    \
    X(free_null, 0, give(NULL))                                      \
    X(usable_size, 0, usable(small))                                 \
    X(realloc_in_place, 0, small = resize(small, 100))               \
    X(calloc_free, 0, give(take_zeroed(1, 64)))                      \
    X(aligned_alloc_free, 0, give(take_aligned(64, 64)))             \
    X(posix_memalign_free, 0, if (!take_posix(&p, 32, 256)) give(p)) \
    X(large_malloc_free, 0, give(take(100000)))                      \
    X(large_usable_size, 0, usable(large))                           \
    X(large_realloc_in_place, 0, large = resize(large, 100000))

#define X(name, spare, calls)                                        \
    void calls_##name(unsigned long count);                          \
    __attribute__((noinline)) void calls_##name(unsigned long count) \
    {                                                                \
        for (unsigned long i = 0; i < count; i++) {                  \
            calls;                                                   \
        }                                                            \
    }
KINDS(X)
#undef X

static void prepare(unsigned spare)
{
    for (unsigned i = 0; i < spare; i++)
        many[i] = take(64 + 32 * (spare % 17));
    for (unsigned i = 0; i < spare; i++)
        give(many[i]);
}

int main(int argc, char **argv)
{
    unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
    small = take(112);
    large = take(100000);
    heap = hakmem_heap_new(NULL);
#define X(name, spare, calls) \
    prepare(spare);           \
    calls_##name(count);
    KINDS(X)
#undef X
    give(small);
    give(large);
    hakmem_heap_destroy(heap);
    return !count;
}
