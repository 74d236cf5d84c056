/* SPDX-License-Identifier: MIT
 * Basics for every file: attributes, units, alignment, and loads and stores with the memory order in the name. Each
 * acquire has a matching release: docs/reference.md lists the pairs. */
#ifndef HAK_WORDS_H
#define HAK_WORDS_H

#include <errno.h>
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
#define HAK_STARTUP __attribute__((section(".text.startup"))) /* beside the constructors that call it */
#define HAK_HIDDEN __attribute__((visibility("hidden")))      /* on data of the fast path it saves the GOT */
/* A static program may lack the function. */
#define HAK_OPTIONAL(f) extern __typeof__(f) f __attribute__((weak))
#define HAK_EXPORT __attribute__((visibility("default")))
#define HAK_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
/* Reads fields that their owner may be writing: for statistics, where any recent value will do. */
#define HAK_SNAPSHOT __attribute__((noinline, no_sanitize("thread")))
#define HAK_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define HAK_CACHELINE 64
/* Before an array or structure that few processes touch. The linker places variables by alignment, so these lie
 * together, apart from those that every process touches (decision 0065). */
#define HAK_SELDOM _Alignas(2 * HAK_CACHELINE)
/* the smallest page of an x86-64 or arm64 kernel; hak_os_page_size() returns the actual one */
#define HAK_SYSTEM_PAGE ((size_t)4096)

#define HAK_KIB ((size_t)1 << 10)
#define HAK_MIB ((size_t)1 << 20)
#define HAK_GIB ((size_t)1 << 30)

/* "Page" without further words means this: the unit of slabs, spans and tags. */
#define HAK_PAGE_LG 16
#define HAK_PAGE ((size_t)1 << HAK_PAGE_LG)

/* Orders writes as seen by a signal handler in the same thread, and by a child that another thread forks. */
#define HAK_KEEP_ORDER() __asm__ volatile("" ::: "memory")

/* Each argument is evaluated once. */
#define HAK_LOAD_RELAXED(p) atomic_load_explicit(p, memory_order_relaxed)
#define HAK_LOAD_ACQUIRE(p) atomic_load_explicit(p, memory_order_acquire)
#define HAK_STORE_RELAXED(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define HAK_STORE_RELEASE(p, v) atomic_store_explicit(p, v, memory_order_release)
#define HAK_ADD_RELAXED(p, n) atomic_fetch_add_explicit(p, n, memory_order_relaxed)
#define HAK_ADD_RELEASE(p, n) atomic_fetch_add_explicit(p, n, memory_order_release)
#define HAK_SUB_RELAXED(p, n) atomic_fetch_sub_explicit(p, n, memory_order_relaxed)
#define HAK_OR_RELAXED(p, bits) atomic_fetch_or_explicit(p, bits, memory_order_relaxed)
#define HAK_OR_RELEASE(p, bits) atomic_fetch_or_explicit(p, bits, memory_order_release)
#define HAK_OR_ACQ_REL(p, bits) atomic_fetch_or_explicit(p, bits, memory_order_acq_rel)
#define HAK_AND_RELAXED(p, bits) atomic_fetch_and_explicit(p, bits, memory_order_relaxed)
#define HAK_EXCHANGE_RELAXED(p, v) atomic_exchange_explicit(p, v, memory_order_relaxed)
#define HAK_EXCHANGE_ACQUIRE(p, v) atomic_exchange_explicit(p, v, memory_order_acquire)
#define HAK_EXCHANGE_RELEASE(p, v) atomic_exchange_explicit(p, v, memory_order_release)
#define HAK_EXCHANGE_ACQ_REL(p, v) atomic_exchange_explicit(p, v, memory_order_acq_rel)
/* Compare and swap; on failure *expected is loaded, with acquire unless the operation is relaxed or only releases. */
#define HAK_CAS_RELAXED(p, expected, v) \
    atomic_compare_exchange_strong_explicit(p, expected, v, memory_order_relaxed, memory_order_relaxed)
#define HAK_CAS_ACQUIRE(p, expected, v) \
    atomic_compare_exchange_strong_explicit(p, expected, v, memory_order_acquire, memory_order_relaxed)
#define HAK_CAS_ACQ_REL(p, expected, v) \
    atomic_compare_exchange_strong_explicit(p, expected, v, memory_order_acq_rel, memory_order_acquire)
#define HAK_CAS_WEAK_ACQUIRE(p, expected, v) \
    atomic_compare_exchange_weak_explicit(p, expected, v, memory_order_acquire, memory_order_acquire)
#define HAK_CAS_WEAK_RELEASE(p, expected, v) \
    atomic_compare_exchange_weak_explicit(p, expected, v, memory_order_release, memory_order_relaxed)

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

#endif
