/* SPDX-License-Identifier: MIT
 * See remote_cache.h. */
#include "remote_cache.h"

#include <string.h>

#include "caches/chosen.h"
#include "core/base/work.h"
#include "core/parts/parts.h"
#include "drain.h"
#include "owned.h"
#include "share.h"
#include "slots.h"

#define REMOTE_MIN 4u               /* fewer blocks do not serve a refill, */
#define REMOTE_LARGE 1024u          /* unless they are larger than this */
#define REMOTE_BYTES (32 * HAK_KIB) /* of a class wait here at most, or two blocks: their owner does without them */

static uint32_t remote_capacity(unsigned cls)
{
    return (uint32_t)hak_min(hak_parts.capacity[cls], hak_max(2, REMOTE_BYTES / hak_strides[cls]));
}

/* --- an array, or a list ------------------------------------------------------------------------------- */

#if HAK_CACHE_SLOTS
/* All but those freed last, of which so many stay. */
static void flush_to(struct hak_heap *heap, struct hak_bin *b, uint32_t keep)
{
    uint32_t rest = b->remote_count - keep;
    b->remote_count = (uint16_t)keep;
    hak_drain_array(heap, b->remote_cache, rest);
    memmove(b->remote_cache, b->remote_cache + rest, keep * sizeof *b->remote_cache);
}

/* Other classes find the slots. */
static void drop_slots(struct hak_heap *heap, struct hak_bin *b)
{
    hak_slots_put(heap, b->remote_cache, b->remote_lg);
    b->remote_cache = NULL;
    b->remote_capacity = b->remote_lg = 0;
}

static bool give_to_bin(struct hak_heap *heap, unsigned cls, uint32_t count)
{
    heap->bins[cls].remote_count = 0;
    return hak_cache_give(heap, cls, heap->bins[cls].remote_cache, count);
}

/* Slots for one more block, twice as many at a time; returns how many there are. The capacity may be less than before:
 * then there are no more. */
static uint32_t grow_remote_slots(struct hak_heap *heap, struct hak_bin *b, uint32_t capacity)
{
    uint32_t most = b->remote_lg ? 1u << b->remote_lg : 0;
    unsigned lg = hak_slots_lg((uint32_t)hak_min(capacity, 2 * most));
    void **slots = b->remote_count < most || lg <= b->remote_lg ? NULL : hak_slots_get(heap, lg);
    if (!slots)
        return most;
    if (most) {
        memcpy(slots, b->remote_cache, most * sizeof *slots);
        hak_slots_put(heap, b->remote_cache, b->remote_lg);
    }
    b->remote_cache = slots;
    b->remote_lg = (uint8_t)lg;
    return 1u << lg;
}

static void put_checked(struct hak_heap *heap, struct hak_bin *b, void *block, uint32_t capacity)
{
    uint32_t most = grow_remote_slots(heap, b, capacity);
    b->remote_capacity = (uint16_t)hak_min(capacity - 1, most);
    if (b->remote_count < most)
        b->remote_cache[b->remote_count++] = block;
    else
        hak_drain_array(heap, &block, 1);
}
#else
/* Cuts the list behind its first `keep` blocks; returns the rest. */
static void *cut_remote_list(struct hak_bin *b, uint32_t keep)
{
    void *last = b->remote_cache, *rest;
    for (uint32_t i = 1; i < keep; i++)
        last = hak_next_load(last);
    rest = keep ? hak_next_load(last) : last;
    if (keep)
        hak_next_store(last, NULL);
    else
        b->remote_cache = NULL;
    return rest;
}

static void flush_to(struct hak_heap *heap, struct hak_bin *b, uint32_t keep)
{
    void *rest = cut_remote_list(b, keep);
    b->remote_count = (uint16_t)keep;
    hak_drain(heap, rest);
}

static void drop_slots(struct hak_heap *heap, struct hak_bin *b)
{
    (void)heap, (void)b;
}

static bool give_to_bin(struct hak_heap *heap, unsigned cls, uint32_t count)
{
    struct hak_chain chain = {.head = heap->bins[cls].remote_cache, .count = count};
    heap->bins[cls].remote_cache = NULL;
    heap->bins[cls].remote_count = 0;
    return hak_cache_give(heap, cls, chain);
}

static void put_checked(struct hak_heap *heap, struct hak_bin *b, void *block, uint32_t capacity)
{
    (void)heap, (void)block; /* is on the list */
    b->remote_capacity = (uint16_t)capacity;
}
#endif

/* --- how much, and when -------------------------------------------------------------------------------- */

/* The blocks freed last stay: one, by which a free of it is seen, or what a thread that shares the class keeps. */
void hak_remote_cache_check(struct hak_heap *heap, unsigned cls, void *block)
{
    struct hak_bin *b = &heap->bins[cls];
    bool shares = hak_share_is_on(b, cls);
    uint32_t keep = shares ? hak_share_capacity(cls) : 1;
    uint32_t capacity = shares ? keep + (uint32_t)hak_max(1, keep / 2) : remote_capacity(cls);
    hak_owned_mark_used(heap, cls);
    put_checked(heap, b, block, capacity);
    if (b->remote_count < capacity)
        return;
    hak_work_add(b->remote_count);
    hak_share_count_trip(b);
    flush_to(heap, b, keep);
}

void hak_remote_cache_flush_class(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    if (b->remote_count)
        flush_to(heap, b, 0);
    if (b->remote_cache)
        drop_slots(heap, b);
}

void hak_remote_cache_flush(struct hak_heap *heap)
{
    hak_heap_each_class(heap, hak_remote_cache_flush_class);
}

/* A few blocks go home rather: of a class that is freed here but seldom used, and, if two threads came to use
 * blocks of one cache line by handing one over, so that they do not share it forever. */
uint32_t hak_remote_cache_refill(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    uint32_t count = b->remote_count;
    if (!count || (count < REMOTE_MIN && hak_strides[cls] <= REMOTE_LARGE && !hak_share_is_on(b, cls)))
        return 0;
    hak_count(&heap->counters.remote_reused, count);
    return give_to_bin(heap, cls, count) ? count : 0;
}
