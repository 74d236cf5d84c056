/* SPDX-License-Identifier: MIT
 * Words that every file uses: branch hints, checks, alignment, locks with ranks.
 * HAK_CHECK stays in release builds: a broken invariant stops the process with one line.
 * HAK_ASSERT exists in debug builds only. */
#ifndef HAK_BASE_H
#define HAK_BASE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hak_config.h"

#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HAK_NOINLINE __attribute__((noinline))
#define HAK_COLD __attribute__((noinline, cold))
#define HAK_INLINE static inline __attribute__((always_inline))
#define HAK_STARTUP __attribute__((section(".text.startup"))) /* beside the constructors, which call it */
#define HAK_HIDDEN __attribute__((visibility("hidden"))) /* on data of the fast path: saves the GOT */
#define HAK_EXPORT __attribute__((visibility("default")))
/* Reads fields that their owner may be writing: for statistics, where any recent value will do. */
#define HAK_SNAPSHOT __attribute__((noinline, no_sanitize("thread")))
#define HAK_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define HAK_CACHELINE 64
#define HAK_SYSTEM_PAGE ((size_t)4096) /* the least that an x86-64 or arm64 kernel has; hak_os_page_size() tells */

#define HAK_KIB ((size_t)1 << 10)
#define HAK_MIB ((size_t)1 << 20)
#define HAK_GIB ((size_t)1 << 30)

_Noreturn HAK_COLD void hak_check_failed(const char *what, const char *file, int line);

#define HAK_CHECK(x) (HAK_LIKELY(x) ? (void)0 : hak_check_failed(#x, __FILE__, __LINE__))
#ifdef NDEBUG
#define HAK_ASSERT(x) ((void)0)
#else
#define HAK_ASSERT(x) HAK_CHECK(x)
#endif

HAK_INLINE size_t hak_align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

HAK_INLINE bool hak_is_pow2(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

HAK_INLINE size_t hak_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

HAK_INLINE size_t hak_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Locks are taken in ascending rank; a debug build checks it. fork.c takes them all, in this order. */
enum hak_rank {
    HAK_RANK_INIT,
    HAK_RANK_ORPHAN,
    HAK_RANK_THREADS,
    HAK_RANK_FRONTEND,
    HAK_RANK_SPANS,
    HAK_RANK_REGISTRY,
    HAK_RANK_BACKEND,
    HAK_RANK_RELEASE,
    HAK_RANK_RANGE,
    HAK_RANK_META,
    HAK_NRANKS
};

struct hak_lock {
    pthread_mutex_t mutex;
    unsigned rank;
    _Atomic(uint64_t) taken; /* how often; read by the statistics */
};

#define HAK_LOCK_INIT(r) {PTHREAD_MUTEX_INITIALIZER, (r), 0}

void hak_lock_acquire(struct hak_lock *lock);
void hak_lock_release(struct hak_lock *lock);

#endif
