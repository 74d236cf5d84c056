// SPDX-License-Identifier: MIT
// What a compiler with -fsanitize=alloc-token calls: __alloc_token_NAME(arguments, token), or the token in the name.
// usage: tokens APART LG: whether types with pointers lie apart; the logarithm of a superslab
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

#include "hakmem.h"

#define BOTH(result, name, ...)                             \
    result __alloc_token_##name(__VA_ARGS__, size_t token); \
    result __alloc_token_0_##name(__VA_ARGS__);             \
    result __alloc_token_1_##name(__VA_ARGS__);

extern "C" {
BOTH(void *, malloc, size_t)
BOTH(void *, calloc, size_t, size_t)
BOTH(void *, realloc, void *, size_t)
BOTH(void *, reallocarray, void *, size_t, size_t)
BOTH(void *, aligned_alloc, size_t, size_t)
BOTH(void *, memalign, size_t, size_t)
BOTH(int, posix_memalign, void **, size_t, size_t)
BOTH(void *, _Znwm, size_t)
BOTH(void *, _Znam, size_t)
BOTH(void *, _ZnwmRKSt9nothrow_t, size_t, const std::nothrow_t &)
BOTH(void *, _ZnamRKSt9nothrow_t, size_t, const std::nothrow_t &)
BOTH(void *, _ZnwmSt11align_val_t, size_t, std::align_val_t)
BOTH(void *, _ZnamSt11align_val_t, size_t, std::align_val_t)
BOTH(void *, _ZnwmSt11align_val_tRKSt9nothrow_t, size_t, std::align_val_t, const std::nothrow_t &)
BOTH(void *, _ZnamSt11align_val_tRKSt9nothrow_t, size_t, std::align_val_t, const std::nothrow_t &)
#ifdef TOKEN_MAX
extern const size_t hakmem_token_max;
const size_t hakmem_token_max = TOKEN_MAX;
#else
#define TOKEN_MAX SIZE_MAX
#endif
}
static const size_t most = TOKEN_MAX;

static bool apart;
static unsigned checked;

static void fail(const char *what, int line)
{
    fprintf(stderr, "line %d: %s\n", line, what);
    exit(1);
}

#define CHECK(what) ((what) ? (void)checked++ : fail(#what, __LINE__))

// A block is in the heap for types with pointers if, and only if, its token says so.
static void check(void *p, size_t size, size_t align, bool pointers)
{
    CHECK(p && reinterpret_cast<uintptr_t>(p) % align == 0 && hakmem_malloc_usable_size(p) >= size);
    CHECK((hakmem_heap_of(p) != nullptr) == (apart && pointers));
    memset(p, 1, size);
}

#define EACH(size, align, name, ...)                                                                \
    for (size_t token : {size_t(0), most / 2 - 1, most / 2, most - 1}) {                            \
        void *p = __alloc_token_##name(__VA_ARGS__, token);                                         \
        check(p, size, align, token >= most / 2);                                                   \
        free(p);                                                                                    \
    }                                                                                               \
    for (int fast : {0, 1}) {                                                                       \
        void *p = fast ? __alloc_token_1_##name(__VA_ARGS__) : __alloc_token_0_##name(__VA_ARGS__); \
        check(p, size, align, fast);                                                                \
        free(p);                                                                                    \
    }

static unsigned handled;

static void handler()
{
    if (++handled == 3)
        std::set_new_handler(nullptr);
}

int main(int argc, char **argv)
{
    apart = argc > 1 && atoi(argv[1]);
    for (size_t size : {1, 16, 100, 5000, 100000, 5000000}) {
        EACH(size, 16, malloc, size)
        EACH(size, 16, calloc, size, 1)
        EACH(size, 16, realloc, nullptr, size)
        EACH(size, 16, reallocarray, nullptr, size, 1)
        EACH(size, 256, aligned_alloc, 256, size)
        EACH(size, 256, memalign, 256, size)
        EACH(size, 1 << 23, memalign, 1 << 23, size)
        EACH(size, 16, _Znwm, size)
        EACH(size, 16, _Znam, size)
        EACH(size, 16, _ZnwmRKSt9nothrow_t, size, std::nothrow)
        EACH(size, 16, _ZnamRKSt9nothrow_t, size, std::nothrow)
        EACH(size, 64, _ZnwmSt11align_val_t, size, std::align_val_t(64))
        EACH(size, 64, _ZnamSt11align_val_t, size, std::align_val_t(64))
        EACH(size, 64, _ZnwmSt11align_val_tRKSt9nothrow_t, size, std::align_val_t(64), std::nothrow)
        EACH(size, 64, _ZnamSt11align_val_tRKSt9nothrow_t, size, std::align_val_t(64), std::nothrow)
        void *p = nullptr;
        CHECK(__alloc_token_posix_memalign(&p, 64, size, most - 1) == 0);
        check(p, size, 64, true);
        p = __alloc_token_realloc(p, size * 2, 0); // stays where it is
        check(p, size * 2, 16, true);
        free(p);
    }
    void *p = nullptr;
    CHECK(__alloc_token_posix_memalign(&p, 3, 1, 0) == EINVAL && !p);
    CHECK(__alloc_token_posix_memalign(&p, 16, SIZE_MAX, SIZE_MAX) == ENOMEM && !p);
    CHECK(!__alloc_token_malloc(SIZE_MAX, SIZE_MAX) && !__alloc_token_reallocarray(nullptr, SIZE_MAX, 2, 0));
    CHECK(!__alloc_token_aligned_alloc(3, 1, SIZE_MAX) && !__alloc_token_calloc(SIZE_MAX, 2, SIZE_MAX));
    CHECK(!__alloc_token__ZnwmRKSt9nothrow_t(SIZE_MAX / 2, std::nothrow, SIZE_MAX));
    std::set_new_handler(handler);
    bool thrown = false;
    try {
        __alloc_token__Znwm(SIZE_MAX / 2, SIZE_MAX);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown && handled == 3);
    // No superslab has blocks of both kinds.
    static void *blocks[2000];
    int lg = argc > 2 ? atoi(argv[2]) : 21;
    for (unsigned i = 0; i < 2000; i++)
        blocks[i] = __alloc_token_malloc(48, i % 2 ? most - 1 : 0);
    for (unsigned i = 0; apart && i < 2000; i += 2)
        for (unsigned k = 1; k < 2000; k += 2)
            if (reinterpret_cast<uintptr_t>(blocks[i]) >> lg == reinterpret_cast<uintptr_t>(blocks[k]) >> 16)
                fail("blocks with pointers and without lie in one superslab", __LINE__);
    for (void *block : blocks)
        free(block);
    printf("%u checks\n", checked);
}
