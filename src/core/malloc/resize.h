/* SPDX-License-Identifier: MIT
 * realloc: in place, moved without copying, or copied. */
#ifndef HAK_RESIZE_H
#define HAK_RESIZE_H

#include "core/base/words.h"

/* p: a live block. NULL without memory for more than it has, or above PTRDIFF_MAX: the old block is untouched. */
void *hak_resize(void *p, size_t size);

#endif
