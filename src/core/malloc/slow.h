/* SPDX-License-Identifier: MIT
 * The slow entries: what the fast path hands over. Each ends in one maintenance. All return NULL without memory. */
#ifndef HAK_SLOW_H
#define HAK_SLOW_H

#include "core/base/words.h"

#define HAK_SPAN_WORK 32u /* a span that is taken, resized or freed counts as so many blocks of work */

/* The bin is empty, or the size is not small. Sets errno: malloc itself has no time for it. */
HAK_NOINLINE void *hak_malloc_slow(size_t size);
/* The block is not known to be of a slab of this thread's. */
HAK_NOINLINE void hak_free_slow(void *p);
/* The bin is due to be checked before it takes p, or p is the block that it took last. */
HAK_NOINLINE void hak_free_check(void *p, unsigned cls);
/* The bin is empty: a block of the class itself. */
void *hak_alloc_class(unsigned cls);
/* A span of its own; align: a power of two. */
void *hak_alloc_span(size_t size, size_t align, bool zero);

/* In counting builds. */
void hak_count_malloc(void);
void hak_count_free(void);

#endif
