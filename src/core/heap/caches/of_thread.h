/* SPDX-License-Identifier: MIT
 * What `list` and `array` share: slow paths pop from the same bin as the fast path. */
#ifndef HAK_CACHES_OF_THREAD_H
#define HAK_CACHES_OF_THREAD_H

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
