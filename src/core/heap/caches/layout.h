/* SPDX-License-Identifier: MIT
 * The fields of the chosen cache in a thread's cache (HAK_CACHE_FIELDS), in a bin (HAK_BIN_FIELDS), and in a heap
 * (HAK_HEAP_FIELDS; they stay when it is recycled). */
#ifndef HAK_CACHES_LAYOUT_H
#define HAK_CACHES_LAYOUT_H

#include "core/base/lock.h"
#include "core/base/sizeclass.h"

#if HAK_CACHE_ARRAY
#include "array/layout.h"
#else
#include "list/layout.h"
#endif

#endif
