/* SPDX-License-Identifier: MIT
 * hakmem: inline malloc and free, for programs that link libhakmem.a, with or without LTO. If the size is a
 * compile-time constant, malloc needs no lookup of its class; and a free that names the size needs no lookup of the
 * owner: the block goes to the bin of the thread that frees it. layout.h, which is generated with the library, has the
 * constants that this header needs. The name of the bins contains version and build: with any other library, and with
 * the shared one, the linker reports it as undefined. Builds that check each call have plain calls instead
 * (plain/hakmem/inline.h). */
#ifndef HAKMEM_INLINE_H
#define HAKMEM_INLINE_H

#include <stdint.h>

#include <hakmem.h>
#include <hakmem/layout.h>

#define HAKMEM_INLINE static inline __attribute__((__always_inline__, __unused__))

/* Writes before it stay before it: the program's to the block, and those that a child sees if another thread forks. */
#define HAKMEM_INLINE_ORDER() __asm__ __volatile__("" : : : "memory")

#ifdef __cplusplus
extern "C" {
#endif

/* A thread's free blocks, as in src/core/heap/cache.h. */
struct __attribute__((__may_alias__)) hakmem_inline_bins {
    uint64_t owner;
    void *bin[HAKMEM_INLINE_CLASSES];
    uint64_t room[HAKMEM_INLINE_CLASSES]; /* frees until the library is called */
};
extern __thread struct hakmem_inline_bins HAKMEM_INLINE_NAME
    __attribute__((__visibility__("hidden"), __tls_model__("initial-exec")));

/* Called if the bin is empty, or is due for a check. */
__attribute__((__visibility__("hidden"), __cold__)) void *hakmem_inline_refill(size_t size);
__attribute__((__visibility__("hidden"), __cold__)) void hakmem_inline_check(void *ptr, unsigned cls);

typedef void *__attribute__((__may_alias__)) hakmem_inline_link;

static const unsigned char hakmem_inline_classes[] = {HAKMEM_INLINE_MAP};

/* Counts a free; true if there is no room, or the block was also the last one freed. */
HAKMEM_INLINE int hakmem_inline_spend(uint64_t *room, void *const *last, const void *ptr)
{
#if defined(__x86_64__)
    int look; /* a rotation leaves the zero flag alone: one branch tests both */
    __asm__("cmpq %[last], %[ptr]\n\trorq $1, %[room]"
            : "=@ccbe"(look), [room] "+m"(*room)
            : [last] "m"(*last), [ptr] "r"(ptr));
    return look;
#else
    uint64_t was = *room;
    *room = was >> 1 | was << 63;
    return (int)(was & 1) | (*last == ptr);
#endif
}

/* Like hakmem_malloc, but also NULL if memory is short and hakmem_malloc would return a span. */
HAKMEM_INLINE void *hakmem_inline_malloc(size_t size)
{
    if (size > HAKMEM_INLINE_MOST)
        return hakmem_malloc(size);
    void **bin = &HAKMEM_INLINE_NAME.bin[hakmem_inline_classes[HAKMEM_INLINE_INDEX(size)]];
    void *block = HAKMEM_INLINE_LIST ? *bin : *(void **)*bin;
    if (__builtin_expect(!block, 0))
        return hakmem_inline_refill(size);
    *bin = HAKMEM_INLINE_LIST ? *(hakmem_inline_link *)block : (void **)*bin - 1;
    HAKMEM_INLINE_ORDER();
    return block;
}

/* Frees a block of hakmem_inline_malloc(size) that was not resized; not NULL. Every 63rd time the library checks this,
 * and stops the process with one line if it is violated. free() accepts such a block, too. */
__attribute__((__nonnull__)) HAKMEM_INLINE void hakmem_inline_free(void *ptr, size_t size)
{
    if (size > HAKMEM_INLINE_MOST) {
        hakmem_free(ptr);
        return;
    }
    unsigned cls = hakmem_inline_classes[HAKMEM_INLINE_INDEX(size)];
    void **bin = &HAKMEM_INLINE_NAME.bin[cls];
    uint64_t *room = &HAKMEM_INLINE_NAME.room[cls];
    HAKMEM_INLINE_ORDER();
    void *held = *bin, **last = HAKMEM_INLINE_LIST ? &held : (void **)held;
    if (__builtin_expect(hakmem_inline_spend(room, last, ptr), 0)) {
        hakmem_inline_check(ptr, cls);
    } else if (HAKMEM_INLINE_LIST) {
        *(hakmem_inline_link *)ptr = held;
        *bin = ptr;
    } else {
        last[1] = ptr;
        HAKMEM_INLINE_ORDER();
        *bin = last + 1;
    }
}

#ifdef __cplusplus
}
#endif

#endif
