/* SPDX-License-Identifier: MIT
 * Hardened builds, where the settings ask for it: each small block is overwritten when it is freed, and waits for a
 * while before it can serve again. When it leaves, its bytes must be as free left them. Blocks wait by thread, the one
 * freed longest ago first, linked through their first words. Where a setting is on, a thread's tag matches no page: all
 * frees take the slow path, which asks here. So it costs nothing where it is off. Other builds: nothing. */
#ifndef HAK_QUARANTINE_H
#define HAK_QUARANTINE_H

#include "heap.h"

#if HAK_HARDENED
/* Whether free has anything to ask. */
HAK_INLINE bool hak_quarantine_is_on(void)
{
    return HAK_UNLIKELY(hak_options.quarantine_kb | hak_options.zero_on_free);
}

bool hak_quarantine_take(struct hak_heap *heap, unsigned cls, void *p);

/* A block that is freed, and marked. False: it was overwritten at most, and is to be taken back as usual. */
HAK_INLINE bool hak_quarantine_keep(struct hak_heap *heap, unsigned cls, void *p)
{
    return hak_quarantine_is_on() && hak_quarantine_take(heap, cls, p);
}

/* By the thread: all leave. */
void hak_quarantine_flush(struct hak_heap *heap);

HAK_INLINE size_t hak_quarantine_bytes(const struct hak_heap *heap)
{
    return heap->quarantine.bytes;
}
#else
HAK_INLINE bool hak_quarantine_is_on(void)
{
    return false;
}

HAK_INLINE bool hak_quarantine_keep(struct hak_heap *heap, unsigned cls, void *p)
{
    (void)heap, (void)cls, (void)p;
    return false;
}

HAK_INLINE void hak_quarantine_flush(struct hak_heap *heap)
{
    (void)heap;
}

HAK_INLINE size_t hak_quarantine_bytes(const struct hak_heap *heap)
{
    (void)heap;
    return 0;
}
#endif

#endif
