/* SPDX-License-Identifier: MIT
 * What the fast path hands over, and the rest of the malloc family, without the API's names and errno. */
#ifndef HAK_SLOW_H
#define HAK_SLOW_H

#include "cache.h"

/* Sizes above PTRDIFF_MAX are refused everywhere. All return NULL without memory, and leave errno to api. */
void *hak_alloc_zeroed(size_t size);
/* `align`: a power of two. */
void *hak_alloc_aligned(size_t align, size_t size);
/* p: a live block. NULL: the old block is untouched. */
void *hak_resize(void *p, size_t size);
/* Stops the process for what is no block of ours; 0 for NULL. */
size_t hak_usable_size(const void *p);
/* Gives back what is kept beyond `keep` bytes, for all threads. Returns bytes given back. */
size_t hak_trim(size_t keep);

#endif
