/* SPDX-License-Identifier: MIT
 * The slow entries, which the fast path calls. Each ends with a maintenance step. Those that allocate return NULL
 * without memory. */
#ifndef HAK_SLOW_H
#define HAK_SLOW_H

#include "core/base/words.h"

#define HAK_SPAN_WORK 8u /* a large block that is taken, resized or freed counts as so many blocks of work */

/* The bin is empty, or the size is not small. Sets errno, which would cost the fast path instructions. */
HAK_NOINLINE void *hak_malloc_slow(size_t size);
/* The size is not small. */
HAK_NOINLINE void *hak_malloc_large(size_t size);
/* The same for a block of zeros, and for one that is aligned to more than 16 bytes; align: a power of two. */
HAK_NOINLINE void *hak_alloc_zeroed_slow(size_t size);
HAK_NOINLINE void *hak_alloc_aligned_slow(size_t align, size_t size);
/* Zeroed and aligned. */
void *hak_alloc_aligned_zeroed(size_t align, size_t size);
/* The block may not belong to a slab of this thread. */
HAK_NOINLINE void hak_free_slow(void *p);
/* The bin is due for a check before it takes p, or p is the block that it took last. */
HAK_NOINLINE void hak_free_check(void *p, unsigned cls);
/* The bin is empty: returns a block of exactly this class, or NULL, without errno. */
void *hak_alloc_class(unsigned cls);

/* Usable bytes, at least, of a block of so many requested bytes. */
size_t hak_good_size(size_t size);

/* For counting builds. */
void hak_count_malloc(void);
void hak_count_free(void);

#endif
