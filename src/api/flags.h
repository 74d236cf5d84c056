/* SPDX-License-Identifier: MIT
 * Where mallocx gets its blocks: from malloc, whatever the flags say of arenas. In libhakmem-jemalloc.so,
 * compat/jemalloc/api/flags.h stands in its place. */
#ifndef HAK_FLAGS_H
#define HAK_FLAGS_H

#include <stdlib.h>

#define flags_malloc(flags, size) malloc(size)
#define flags_calloc(flags, size) calloc(1, size)
#define flags_aligned(flags, align, size) aligned_alloc(align, size)

#endif
