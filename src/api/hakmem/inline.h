/* SPDX-License-Identifier: MIT
 * hakmem: malloc and free in line, for programs that link libhakmem.a, with or without LTO. A size that is known when
 * compiling costs no look-up of its class, and a free that names the size none of its owner: the block goes to the bin
 * of the thread that frees it. layout.h says what this header has to know of the library. It is made with the library,
 * and the bins have a name there with version and build in it: with any other library, and with the shared one, the
 * linker says that this name is undefined. A build that watches each call has plain calls instead
 * (plain/hakmem/inline.h). */
#ifndef HAKMEM_INLINE_H
#define HAKMEM_INLINE_H

#include <stdint.h>

#include <hakmem.h>
#include <hakmem/layout.h>

#define HAKMEM_INLINE static inline __attribute__((__always_inline__, __unused__))

#ifdef __cplusplus
extern "C" {
#endif

/* A thread's free blocks, as src/core/heap/cache.h has them. */
struct __attribute__((__may_alias__)) hakmem_inline_bins {
    uint64_t owner;
    void *bin[HAKMEM_INLINE_CLASSES];
    uint64_t room[HAKMEM_INLINE_CLASSES]; /* frees until the library is called */
};
extern __thread struct hakmem_inline_bins HAKMEM_INLINE_NAME
    __attribute__((__visibility__("hidden"), __tls_model__("initial-exec")));

/* The bin is empty, or to be looked at. */
__attribute__((__visibility__("hidden"), __cold__)) void *hakmem_inline_refill(size_t size);
__attribute__((__visibility__("hidden"), __cold__)) void hakmem_inline_check(void *ptr, unsigned cls);

typedef void *__attribute__((__may_alias__)) hakmem_inline_link;

static const unsigned char hakmem_inline_classes[] = {HAKMEM_INLINE_MAP};

/* Counts a free; whether it has no room, or is of the block that was freed last. */
HAKMEM_INLINE int hakmem_inline_spend(uint64_t *room, void *const *last, const void *ptr)
{
#if defined(__x86_64__)
    int look; /* a rotation leaves the zero flag alone: one branch tells both */
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

/* As hakmem_malloc. NULL, too, where memory is short and hakmem_malloc would give the block a mapping of its own. */
HAKMEM_INLINE void *hakmem_inline_malloc(size_t size)
{
    if (size > HAKMEM_INLINE_MOST)
        return hakmem_malloc(size);
    void **bin = &HAKMEM_INLINE_NAME.bin[hakmem_inline_classes[HAKMEM_INLINE_INDEX(size)]];
    void *block = HAKMEM_INLINE_LIST ? *bin : *(void **)*bin;
    if (__builtin_expect(!block, 0))
        return hakmem_inline_refill(size);
    *bin = HAKMEM_INLINE_LIST ? *(hakmem_inline_link *)block : (void **)*bin - 1;
    return block;
}

/* Frees a block of hakmem_inline_malloc(size), which no call has resized; not NULL. Each 63rd time the library looks
 * whether it is one, and stops the process with one line if not. Such a block may go to free() as well. */
__attribute__((__nonnull__)) HAKMEM_INLINE void hakmem_inline_free(void *ptr, size_t size)
{
    if (size > HAKMEM_INLINE_MOST) {
        hakmem_free(ptr);
        return;
    }
    unsigned cls = hakmem_inline_classes[HAKMEM_INLINE_INDEX(size)];
    void **bin = &HAKMEM_INLINE_NAME.bin[cls];
    uint64_t *room = &HAKMEM_INLINE_NAME.room[cls];
    __asm__ __volatile__("" : : : "memory"); /* what the program wrote to the block comes first */
    void *held = *bin, **last = HAKMEM_INLINE_LIST ? &held : (void **)held;
    if (__builtin_expect(hakmem_inline_spend(room, last, ptr), 0)) {
        hakmem_inline_check(ptr, cls);
    } else if (HAKMEM_INLINE_LIST) {
        *(hakmem_inline_link *)ptr = held;
        *bin = ptr;
    } else {
        last[1] = ptr;
        *bin = last + 1;
    }
}

#ifdef __cplusplus
}
#endif

#endif
