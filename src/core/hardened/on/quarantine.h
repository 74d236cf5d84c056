/* SPDX-License-Identifier: MIT
 * See core/heap/quarantine.h. */
#ifndef HAK_ON_QUARANTINE_H
#define HAK_ON_QUARANTINE_H

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
