/* SPDX-License-Identifier: MIT
 * The quarantine of hardened builds, off by default: free overwrites each small block and holds it back for a while.
 * When a block leaves the quarantine, its bytes must be as free left them. Each thread has a queue of blocks, linked
 * through their first words, oldest first. If a setting turns it on, the thread's tag matches no page, so all frees
 * take the slow path, which calls this. So it costs nothing while off. Other builds: nothing. */
#ifndef HAK_QUARANTINE_H
#define HAK_QUARANTINE_H

#include "core/heap/heap.h"

/* Whether a setting turns the quarantine on. */
HAK_INLINE bool hak_quarantine_is_on(void)
{
    return HAK_UNLIKELY(hak_options.quarantine_kb | hak_options.zero_on_free);
}

bool hak_quarantine_take(struct hak_heap *heap, unsigned cls, void *p);

/* Takes a block that is freed and marked. False: it may have been overwritten, and the caller frees it as usual. */
HAK_INLINE bool hak_quarantine_keep(struct hak_heap *heap, unsigned cls, void *p)
{
    return hak_quarantine_is_on() && hak_quarantine_take(heap, cls, p);
}

/* Empties the thread's quarantine; called by the thread. */
void hak_quarantine_flush(struct hak_heap *heap);

HAK_INLINE size_t hak_quarantine_bytes(const struct hak_heap *heap)
{
    return heap->quarantine->bytes;
}

#endif
