/* SPDX-License-Identifier: MIT
 * libhakmem-profile.so: a heap profile. Loaded before libhakmem.so, it interposes malloc and its family, so the library
 * itself needs no instruction for it. Each thread counts down the bytes that it requests. The call that brings the
 * counter to zero is sampled. The distances between samples are exponentially distributed, with HAKMEM_PROFILE as their
 * mean, so that each byte has the same chance, whatever the program's pattern. A sampled block is aligned to a page:
 * free tests the address alone, and rarely has to look up the block. */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/hakmem.h"
#include "core/base/observer.h"
#include "plain.h"
#include "samples.h"
#include "unwind.h"

#define MARK ((uintptr_t)4095) /* these bits of a sampled block's address are 0 */

static _Atomic(bool) ready;

/* All 0 in a new thread, whose first call takes the slow path. */
static __thread struct self {
    _Atomic(size_t) left; /* bytes until the next sample */
    size_t mean;          /* with which the distance was drawn; 0: not drawn yet */
    uint64_t draws;
    bool inside; /* calls made while sampling are not sampled */
} self __attribute__((tls_model("initial-exec")));

/* --- distances ------------------------------------------------------------------------------------------ */

/* Natural logarithm of x in (0, 1], good to six figures. */
static double logarithm(double x)
{
    union {
        double d;
        uint64_t bits;
    } u = {x};
    int exponent = (int)(u.bits >> 52) - 1023;
    u.bits = (u.bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
    double t = (u.d - 1) / (u.d + 1), s = t * t;
    return exponent * 0.69314718055994531 + 2 * t * (1 + s * (1 / 3.0 + s * (1 / 5.0 + s * (1 / 7.0 + s / 9))));
}

/* A hash of what no two samples share: children have the parent's addresses, and maybe its time, which a library in
 * front of the C library's may hold still. */
static uint64_t draw_bits(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t s = ((uintptr_t)&self ^ (uint64_t)getpid() << 40) + ++self.draws * 0xd1342543de82ef95u;
    s += ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) * 0x9e3779b97f4a7c15u;
    s = (s ^ s >> 30) * 0xbf58476d1ce4e5b9u; /* the finalizer of splitmix64 */
    s = (s ^ s >> 27) * 0x94d049bb133111ebu;
    return s ^ s >> 31;
}

static size_t draw_distance(size_t mean)
{
    double uniform = (double)((draw_bits() >> 11) + 1) * 0x1p-53;
    return (size_t)(-logarithm(uniform) * (double)mean) + 1;
}

/* Otherwise all children would take the same first sample. The distribution has no memory: a new distance is as good.
 */
static void forked(void)
{
    if (self.mean)
        HAK_STORE_RELAXED(&self.left, draw_distance(self.mean));
}

/* --- the slow path -------------------------------------------------------------------------------------- */

/* The mean with which the call for `size` bytes is to be sampled; 0: not sampled. */
static size_t due_mean(size_t size)
{
    if (!HAK_LOAD_ACQUIRE(&ready) || self.inside)
        return 0;
    size_t mean = hak_samples_mean();
    if (!mean || mean != self.mean) {
        self.mean = mean;
        size_t left = mean ? draw_distance(mean) : HAK_PROFILE_STEP;
        if (!mean || size < left) {
            HAK_STORE_RELAXED(&self.left, left - hak_min(size, left - 1));
            return 0;
        }
    }
    HAK_STORE_RELAXED(&self.left, draw_distance(mean));
    return mean;
}

/* Moves the block to an address with the mark, unless it has one, in its heap. */
static void *put_apart(void *p, size_t size)
{
    if (!((uintptr_t)p & MARK))
        return p;
    hakmem_heap *heap = hakmem_heap_of(p);
    void *marked = heap ? hak_plain_heap_aligned_alloc(heap, MARK + 1, size) : hakmem_memalign(MARK + 1, size);
    if (!marked)
        return p;
    memcpy(marked, p, size);
    hakmem_free(p);
    return marked;
}

static HAK_NOINLINE void *sample(void *p, size_t size, size_t mean, void *caller)
{
    void *frames[HAK_PROFILE_DEPTH];
    int saved = errno;
    self.inside = true;
    p = put_apart(p, size);
    if (!((uintptr_t)p & MARK))
        hak_samples_add(p, size, mean, frames, hak_unwind(frames, HAK_PROFILE_DEPTH, caller));
    self.inside = false;
    errno = saved;
    return p;
}

/* A call for `size` bytes that used up the distance gave p. */
static HAK_NOINLINE void *arrive(void *p, size_t size, void *caller)
{
    size_t mean = due_mean(size);
    return p && mean && hak_unwind_is_safe(caller) ? sample(p, size, mean, caller) : p;
}

static bool leave(const void *p)
{
    return p && !((uintptr_t)p & MARK) && hak_samples_remove(p);
}

/* --- malloc and its family ------------------------------------------------------------------------------ */

#define HERE __builtin_return_address(0)

/* Reads `left` once: in a child that a signal's handler forks in between, the parent's remains. */
HAK_INLINE bool use_up(size_t size)
{
    size_t left = HAK_LOAD_RELAXED(&self.left);
    if (HAK_UNLIKELY(size >= left))
        return true;
    HAK_STORE_RELAXED(&self.left, left - size);
    return false;
}

HAK_EXPORT void *malloc(size_t size)
{
    if (HAK_UNLIKELY(use_up(size)))
        return arrive(hakmem_malloc(size), size, HERE);
    return hakmem_malloc(size);
}

static HAK_NOINLINE void free_marked(void *p)
{
    leave(p);
    hakmem_free(p);
}

HAK_EXPORT void free(void *p)
{
    if (HAK_UNLIKELY(!((uintptr_t)p & MARK)))
        free_marked(p);
    else
        hakmem_free(p);
}

HAK_EXPORT void *calloc(size_t n, size_t size)
{
    size_t total;
    void *p = hakmem_calloc(n, size);
    if (__builtin_mul_overflow(n, size, &total) || HAK_LIKELY(!use_up(total)))
        return p;
    return arrive(p, total, HERE);
}

static void *resize(void *old, size_t size, void *caller)
{
    bool was = leave(old);
    void *p = hakmem_realloc(old, size);
    if (HAK_UNLIKELY(!p)) {
        if (was && size)
            hak_samples_restore(old);
        return NULL;
    }
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, caller) : p;
}

HAK_EXPORT void *realloc(void *old, size_t size)
{
    return resize(old, size, HERE);
}

HAK_EXPORT void *reallocarray(void *old, size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return resize(old, total, HERE);
}

HAK_EXPORT int posix_memalign(void **out, size_t alignment, size_t size)
{
    int error = hakmem_posix_memalign(out, alignment, size);
    if (!error && HAK_UNLIKELY(use_up(size)))
        *out = arrive(*out, size, HERE);
    return error;
}

HAK_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    void *p = hakmem_aligned_alloc(alignment, size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

HAK_EXPORT void *memalign(size_t alignment, size_t size)
{
    void *p = hakmem_memalign(alignment, size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

HAK_EXPORT void *valloc(size_t size)
{
    void *p = hakmem_valloc(size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

HAK_EXPORT void *pvalloc(size_t size)
{
    void *p = hakmem_pvalloc(size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

/* As if it were not sampled: a program that makes a block smaller whose usable size is much larger would do so with the
 * sampled ones alone. */
HAK_EXPORT size_t malloc_usable_size(void *p)
{
    size_t size = (uintptr_t)p & MARK ? 0 : hak_samples_size(p), usable = hakmem_malloc_usable_size(p);
    return size ? hak_min(hakmem_good_size(size), usable) : usable;
}

/* A sampled block is larger than requested, which hardened builds would take for a wrong size. */
void free_sized(void *p, size_t size);
HAK_EXPORT void free_sized(void *p, size_t size)
{
    if (leave(p))
        hakmem_free(p);
    else
        hakmem_free_sized(p, size);
}

void free_aligned_sized(void *p, size_t alignment, size_t size);
HAK_EXPORT void free_aligned_sized(void *p, size_t alignment, size_t size)
{
    if (leave(p))
        hakmem_free(p);
    else
        hakmem_free_aligned_sized(p, alignment, size);
}

void cfree(void *p);
HAK_EXPORT void cfree(void *p)
{
    free(p);
}

/* --- heaps of the program ------------------------------------------------------------------------------- */

HAK_EXPORT void *hakmem_heap_malloc(hakmem_heap *heap, size_t size)
{
    void *p = hak_plain_heap_malloc(heap, size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

HAK_EXPORT void *hakmem_heap_calloc(hakmem_heap *heap, size_t n, size_t size)
{
    size_t total;
    void *p = hak_plain_heap_calloc(heap, n, size);
    if (__builtin_mul_overflow(n, size, &total) || HAK_LIKELY(!use_up(total)))
        return p;
    return arrive(p, total, HERE);
}

HAK_EXPORT void *hakmem_heap_aligned_alloc(hakmem_heap *heap, size_t alignment, size_t size)
{
    void *p = hak_plain_heap_aligned_alloc(heap, alignment, size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

HAK_EXPORT void *hakmem_heap_realloc(hakmem_heap *heap, void *old, size_t size)
{
    if (old)
        return resize(old, size, HERE);
    void *p = hak_plain_heap_malloc(heap, size);
    return HAK_UNLIKELY(use_up(size)) ? arrive(p, size, HERE) : p;
}

HAK_EXPORT void hakmem_heap_free(hakmem_heap *heap, void *p)
{
    (void)heap;
    free(p);
}

HAK_EXPORT void hakmem_heap_destroy(hakmem_heap *heap)
{
    if (heap)
        hak_samples_end(heap);
    hak_plain_heap_destroy(heap);
}

/* --- control -------------------------------------------------------------------------------------------- */

/* hakmem_profile and hakmem_set call it. */
static int set_profile_mean(size_t mean)
{
    if (mean > (size_t)1 << 40)
        return -EINVAL;
    HAK_STORE_RELAXED(&self.left, self.mean = 0); /* this thread follows at once */
    return hak_samples_set_mean(mean) ? 0 : -ENOMEM;
}

HAK_EXPORT const struct hak_observer hak_observer_profile = {set_profile_mean};

static size_t wanted_mean(void)
{
    const char *text = getenv("HAKMEM_PROFILE");
    unsigned long mean = text && *text >= '0' && *text <= '9' ? strtoul(text, NULL, 10) : 0;
    return mean <= 1ul << 30 ? mean : 0; /* the setting's range; libhakmem refuses the rest with a line */
}

__attribute__((constructor)) static void start(void)
{
    int saved = errno;
    hak_unwind_start();
    hak_samples_start(wanted_mean());
    pthread_atfork(NULL, NULL, forked);
    HAK_STORE_RELEASE(&ready, true); /* acquired by due_mean */
    errno = saved;
}
