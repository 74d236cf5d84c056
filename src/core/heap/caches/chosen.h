/* SPDX-License-Identifier: MIT
 * The cache of this build (-Dcache), whose contract is contract.h. */
#ifndef HAK_CACHES_CHOSEN_H
#define HAK_CACHES_CHOSEN_H

#include "core/base/words.h"

#if HAK_CACHE_ARRAY
#include "array/array.h"
#elif HAK_CACHE_CPU
#include "cpu/cpu.h"
#else
#include "list/list.h"
#endif

#if !HAK_CACHE_CPU
HAK_INLINE void *hak_cache_pop_again(unsigned cls)
{
    return hak_cache_pop(hak_cache_here(), cls);
}

HAK_INLINE void *hak_cache_taken(struct hak_heap *heap, unsigned cls)
{
    (void)heap;
    return hak_cache_pop(hak_cache_here(), cls);
}
#endif

#endif
