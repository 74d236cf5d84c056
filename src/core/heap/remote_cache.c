/* SPDX-License-Identifier: MIT
 * See remote_cache.h. */
#include "remote_cache.h"

#include "cache_bins.h"
#include "core/base/work.h"
#include "core/parts/parts.h"
#include "owned.h"

#define REMOTE_MIN 4u               /* fewer small blocks do not make a refill */
#define REMOTE_LARGE 1024u          /* bytes of the largest small block */
#define REMOTE_BYTES (32 * HAK_KIB) /* the most bytes of a class that wait here */
#define REMOTE_MOST 64u             /* the most blocks of a class */
#define REMOTE_LEAST 2u             /* the least capacity: one block stays, and one makes a flush worthwhile */
#define REMOTE_FLUSH 32u            /* one free returns so many, so that none takes long */

static uint32_t remote_capacity(unsigned cls)
{
    uint32_t most = (uint32_t)hak_min(hak_parts.capacity[cls], REMOTE_MOST);
    return (uint32_t)hak_max(REMOTE_LEAST, hak_min(most, REMOTE_BYTES / hak_strides[cls]));
}

/* --- how much, and when -------------------------------------------------------------------------------- */

/* The blocks that were freed longest ago return. At least one stays, so that a second free of it is detected. */
void hak_remote_cache_check(struct hak_heap *heap, unsigned cls, void *block)
{
    struct hak_bin *b = &heap->bins[cls];
    uint32_t capacity = remote_capacity(cls);
    hak_heap_begin_change(heap);
    hak_owned_mark_used(heap, cls);
    hak_remote_put_last(heap, b, block, capacity);
    if (b->remote_count >= capacity) {
        uint32_t n = (uint32_t)hak_min(b->remote_count - 1u, REMOTE_FLUSH);
        hak_work_add(n);
        b->flushes += b->flushes < HAK_BURST;
        hak_remote_flush_to(heap, b, b->remote_count - n);
    }
    hak_heap_end_change(heap);
}

void hak_remote_cache_flush_class(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    if (b->remote_count)
        hak_remote_flush_to(heap, b, 0);
    if (b->remote_cache)
        hak_remote_drop_slots(heap, b);
}

void hak_remote_cache_flush(struct hak_heap *heap)
{
    hak_heap_each_class(heap, hak_remote_cache_flush_class);
}

/* A few blocks are not used for a refill; they wait to be returned. The thread may free blocks of the class but seldom
 * allocate them; or two threads may use blocks of one cache line because one block was handed over, and would share the
 * line forever. */
uint32_t hak_remote_cache_refill(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    uint32_t count = b->remote_count;
    if (!count || (count < REMOTE_MIN && hak_strides[cls] <= REMOTE_LARGE))
        return 0;
    hak_count(&heap->counters.remote_reused, count);
    return hak_remote_give(heap, cls, count) ? count : 0;
}
