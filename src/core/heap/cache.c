/* SPDX-License-Identifier: MIT
 * See cache.h. */
#include "cache.h"

#if !HAK_CACHE_CPU
void hak_cache_ask(struct hak_cache *cache)
{
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        if (__atomic_load_n(&cache->room[cls], __ATOMIC_RELAXED) > HAK_ROOM_ASKED / 2)
            __atomic_fetch_add(&cache->room[cls], HAK_ROOM_ASKED, __ATOMIC_RELAXED);
}

bool hak_cache_was_asked(unsigned cls)
{
    if (HAK_LIKELY(__atomic_load_n(&hak_self.room[cls], __ATOMIC_RELAXED) > HAK_ROOM_ASKED / 2))
        return false;
    for (cls = 0; cls < HAK_NCLASSES; cls++)
        hak_cache_set_room(cls, hak_cache_room(cls));
    return true;
}
#endif

#if HAK_CACHE_ARRAY
void *const hak_cache_no_slots[1] = {NULL};
HAK_THREAD_LOCAL struct hak_cache hak_self = {
    .tag = HAK_TAG_NOBODY,
    .bin = {[0 ... HAK_NCLASSES - 1] = (void *)hak_cache_no_slots},
};
#elif HAK_CACHE_CPU
static void *no_slots[1];
#define CLOSED {[0 ... HAK_NCLASSES - 1] = no_slots}
struct hak_arrays hak_arrays_closed = {.top = CLOSED, .end = CLOSED};
HAK_THREAD_LOCAL struct hak_cache hak_self = {.tag = HAK_TAG_NOBODY, .arrays = &hak_arrays_closed};
#else
HAK_THREAD_LOCAL struct hak_cache hak_self = {.tag = HAK_TAG_NOBODY};
#endif
