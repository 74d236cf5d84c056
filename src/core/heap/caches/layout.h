/* SPDX-License-Identifier: MIT
 * The fields of the chosen cache in a thread's cache (HAK_CACHE_FIELDS), in a bin (HAK_BIN_FIELDS), and in a heap:
 * cleared when the heap is recycled (HAK_HEAP_CLEARED_FIELDS), or not (HAK_HEAP_FIELDS). */
#ifndef HAK_CACHES_LAYOUT_H
#define HAK_CACHES_LAYOUT_H

#include "core/base/lock.h"
#include "core/base/sizeclass.h"

#if HAK_CACHE_ARRAY
#include "array/layout.h"
#elif HAK_CACHE_CPU
#include "cpu/layout.h"
#else
#include "list/layout.h"
#endif

#endif
