/* SPDX-License-Identifier: MIT
 * Blocks that are zeroed, or aligned to more than 16 bytes. NULL without memory, or above PTRDIFF_MAX; src/api sets
 * errno. */
#ifndef HAK_ALIGNED_H
#define HAK_ALIGNED_H

#include "core/base/words.h"

void *hak_alloc_zeroed(size_t size);
/* align: a power of two. */
void *hak_alloc_aligned(size_t align, size_t size);

#endif
