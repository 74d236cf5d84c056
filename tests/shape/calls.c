/* SPDX-License-Identifier: MIT
 *
 * calls COUNT: each function below makes the calls that it is named for COUNT times. calls.py runs this under callgrind
 * and reads the cost of each function's calls. The calls go through pointers, so nothing of this program is counted.
 */
#include <malloc.h>
#include <stdlib.h>

static void *(*volatile take)(size_t) = malloc;
static void *(*volatile take_zeroed)(size_t, size_t) = calloc;
static void *(*volatile take_aligned)(size_t, size_t) = aligned_alloc;
static int (*volatile take_posix)(void **, size_t, size_t) = posix_memalign;
static void *(*volatile resize)(void *, size_t) = realloc;
static size_t (*volatile usable)(void *) = malloc_usable_size;
static void (*volatile give)(void *) = free;

static void *small, *large, *p;

#define KINDS(X)                                                  \
    X(malloc_free, give(take(64)))                                \
    X(free_null, give(NULL))                                      \
    X(usable_size, usable(small))                                 \
    X(realloc_in_place, small = resize(small, 100))               \
    X(calloc_free, give(take_zeroed(1, 64)))                      \
    X(aligned_alloc_free, give(take_aligned(64, 64)))             \
    X(posix_memalign_free, if (!take_posix(&p, 32, 256)) give(p)) \
    X(large_malloc_free, give(take(100000)))                      \
    X(large_usable_size, usable(large))                           \
    X(large_realloc_in_place, large = resize(large, 100000))

#define X(name, calls)                                              \
    void make_##name(unsigned long count);                          \
    __attribute__((noinline)) void make_##name(unsigned long count) \
    {                                                               \
        for (unsigned long i = 0; i < count; i++) {                 \
            calls;                                                  \
        }                                                           \
    }
KINDS(X)
#undef X

int main(int argc, char **argv)
{
    unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
    small = take(112);
    large = take(100000);
#define X(name, calls) make_##name(count);
    KINDS(X)
#undef X
    give(small);
    give(large);
    return !count;
}
