/* SPDX-License-Identifier: MIT
 * See cache_bins.h. Arrays begin small and double as the thread uses the class, up to slots for its capacity and the
 * frees of a tick; outgrown arrays serve the thread's other classes. */
#include "cache_bins.h"

#include "core/base/layout.h"
#include "core/base/text.h"
#include "core/heap/caches/slots/slots.h"
#include "core/heap/drain.h"
#include "core/heap/owned.h"
#include "core/pages/block_batch.h"

#define LONGER 4u                   /* a longer bin holds so many capacities */
#define LONGER_BYTES (64 * HAK_KIB) /* the most bytes that it holds */
#define TICKS 15u                   /* between two checks; at a check the thread follows a trim's request */

/* --- slots --------------------------------------------------------------------------------------------- */

/* Sets the number of blocks in the bin. The caller sets its room anew. */
static void set_length(const struct hak_bin *b, unsigned cls, uint32_t n)
{
    hak_self.bin[cls] = b->own.slots + n;
}

static void count_refill(struct hak_heap *heap, unsigned cls, uint32_t blocks)
{
    hak_count(&heap->counters.classes[cls].refills, 1);
    hak_count(&heap->counters.classes[cls].served, blocks);
}

static void count_drained(struct hak_heap *heap, unsigned cls, uint64_t blocks)
{
    hak_count(&heap->counters.classes[cls].served, -blocks);
}

/* Gives the bin slots for `blocks` blocks, if there is memory; returns how many it can hold. */
static uint32_t grow_array(struct hak_heap *heap, unsigned cls, uint32_t blocks)
{
    struct hak_bin *b = &heap->bins[cls];
    unsigned lg = hak_slots_lg(blocks + 1);
    void **old = b->own.slots, **slots = lg > b->own.slots_lg ? hak_slots_get(heap, lg) : NULL;
    if (!slots)
        return b->own.slots_lg ? hak_array_most(b) : 0;
    uint32_t n = hak_array_length(b, cls);
    slots[0] = NULL;
    if (old) {
        hak_move(slots + 1, old + 1, n * sizeof *slots);
        hak_slots_put(heap, old, b->own.slots_lg);
    }
    b->own.slots = slots;
    b->own.slots_lg = (uint8_t)lg;
    set_length(b, cls, n);
    return hak_array_most(b);
}

/* --- room ---------------------------------------------------------------------------------------------- */

/* If a bin overflows and is refilled in turn, the program frees and allocates more blocks in a row than it holds. Such
 * a bin may be longer, until a scan finds it idle. */
static uint32_t array_capacity(const struct hak_bin *b, unsigned cls)
{
    uint32_t capacity = hak_parts.capacity[cls];
    if (b->swings < HAK_SWINGS)
        return capacity;
    return (uint32_t)hak_max(capacity, hak_min(LONGER * capacity, LONGER_BYTES / hak_strides[cls]));
}

/* Sets the frees until the next tick. There are slots for them. */
HAK_INLINE void set_room(struct hak_heap *heap, unsigned cls, uint32_t room)
{
    const struct hak_bin *b = &heap->bins[cls];
    room = (uint32_t)hak_min(room, b->own.slots_lg ? hak_array_most(b) - hak_array_length(b, cls) : 0);
    hak_array_set_room(heap, cls, room);
}

void hak_cache_start(struct hak_heap *heap, unsigned cls)
{
    hak_owned_mark_used(heap, cls); /* the heap must know the slots when it is dissolved */
    if (hak_heap_is_of_cpu(heap))
        return;
    hak_self.room[cls] = HAK_ROOM_NONE;
    grow_array(heap, cls, 1);
    set_room(heap, cls, HAK_BIN_TICK);
}

/* --- filling ------------------------------------------------------------------------------------------- */

/* Makes slots for `blocks` blocks and as many frees; returns the number of free slots. */
static uint32_t room_for(struct hak_heap *heap, unsigned cls, uint32_t blocks)
{
    uint32_t most = (uint32_t)hak_max(hak_parts.capacity[cls], blocks) + HAK_ARRAY_FREES;
    const struct hak_bin *b = &heap->bins[cls];
    uint32_t wanted = (uint32_t)hak_min(2 * blocks, most), have = b->own.slots_lg ? hak_array_most(b) : 0;
    if (HAK_UNLIKELY(wanted > have))
        have = grow_array(heap, cls, wanted);
    return have - hak_array_length(b, cls);
}

static uint32_t take_from(struct hak_slab *slab, uint32_t want, void **slots)
{
    if (hak_block_batches_are_few(slab, want))
        return hak_block_batches_take_few(slab, slots);
    return (hak_block_batches_open(slab) ? hak_slab_take_to_slots : hak_block_batches_take_closed)(slab, want, slots);
}

uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly)
{
    (void)exactly;
    if (hak_heap_is_of_cpu(heap))
        return hak_cpu_take(heap, cls, slab, want);
    struct hak_bin *b = &heap->bins[cls];
    uint32_t n = hak_array_length(b, cls), room = room_for(heap, cls, n + want);
    if (!room)
        return 0;
    uint32_t taken = take_from(slab, (uint32_t)hak_min(want, room), b->own.slots + 1 + n);
    for (uint32_t i = n + 1; HAK_BLOCKS_ARE_MARKED && i <= n + taken; i++)
        hak_mark_renew(b->own.slots[i], cls);
    set_length(b, cls, n + taken);
    count_refill(heap, cls, taken);
    set_room(heap, cls, hak_bin_tick_now(heap));
    return taken;
}

bool hak_cache_give(struct hak_heap *heap, unsigned cls, hak_remote_blocks blocks, uint32_t n)
{
    struct hak_bin *b = &heap->bins[cls];
    if (room_for(heap, cls, n) < n) {
        hak_drain_array(heap, blocks, n);
        return false;
    }
    hak_move(b->own.slots + 1, blocks, n * sizeof *blocks);
    set_length(b, cls, n);
    count_refill(heap, cls, n);
    set_room(heap, cls, hak_bin_tick_now(heap));
    return true;
}

/* --- emptying ------------------------------------------------------------------------------------------ */

/* Drains the blocks freed longest ago; keeps `keep`. */
static void drain_to(struct hak_heap *heap, unsigned cls, uint32_t keep)
{
    struct hak_bin *b = &heap->bins[cls];
    uint32_t n = hak_array_length(b, cls);
    if (n <= keep)
        return;
    hak_drain_array(heap, b->own.slots + 1, n - keep);
    count_drained(heap, cls, n - keep);
    hak_move(b->own.slots + 1, b->own.slots + 1 + n - keep, keep * sizeof *b->own.slots);
    set_length(b, cls, keep);
}

/* The next free is a check. */
static void drain_and_check(struct hak_heap *heap, unsigned cls, uint32_t keep)
{
    drain_to(heap, cls, keep);
    heap->bins[cls].own.steady = 0;
    hak_array_set_room(heap, cls, 0);
}

void hak_cache_drain(struct hak_heap *heap, unsigned cls)
{
    drain_and_check(heap, cls, 0);
}

void hak_cache_halve(struct hak_heap *heap, unsigned cls)
{
    if (hak_heap_is_of_cpu(heap)) {
        hak_cpu_halve(heap, cls);
        return;
    }
    heap->bins[cls].swings = 0;
    drain_and_check(heap, cls, hak_array_length(&heap->bins[cls], cls) / 2);
}

static void drain_one(struct hak_heap *heap, void *p)
{
    hak_drain_array(heap, &p, 1);
}

void hak_cache_leave(unsigned cls, void *p)
{
    if (HAK_CPU_HEAPS)
        hak_cpu_leave(cls);
    hak_self.room[cls] = HAK_ROOM_NEVER;
    drain_one(NULL, p);
}

/* Puts p into the bin. If no slot is free, drains the block freed longest ago. */
static void put_in_array(struct hak_heap *heap, unsigned cls, void *p)
{
    struct hak_bin *b = &heap->bins[cls];
    if (!b->own.slots_lg) {
        drain_one(heap, p);
        count_drained(heap, cls, 1);
        return;
    }
    drain_to(heap, cls, hak_array_most(b) - 1);
    void **end = hak_self.bin[cls];
    end[1] = p;
    hak_self.bin[cls] = end + 1;
}

/* If checks are frequent, the array is doubled, until it has slots for many frees. If a bin overflows again without a
 * refill in between, the program frees a lot: the bin keeps one block. In a long burst of frees each tick is a check,
 * and ticks are frequent: when the burst ends, each block that the bin holds may be the last one of its slab. */
void hak_cache_check(struct hak_heap *heap, unsigned cls, void *p)
{
    if (hak_heap_is_of_cpu(heap)) {
        hak_cpu_check(heap, cls, p);
        return;
    }
    struct hak_bin *b = &heap->bins[cls];
    bool burst = b->overflows == HAK_BURST;
    uint32_t keep = burst ? 1 : array_capacity(b, cls);
    uint32_t most = b->own.slots_lg ? hak_array_most(b) : 0, n = hak_array_length(b, cls);
    hak_owned_mark_used(heap, cls);
    hak_count(&heap->counters.checks, 1);
    bool grows = (burst || n < keep) && most - n <= HAK_BIN_TICK && most < keep + HAK_ARRAY_FREES;
    if (grows)
        grow_array(heap, cls, 2 * most);
    put_in_array(heap, cls, p);
    if (hak_array_length(b, cls) > keep) {
        hak_count(&heap->counters.overflows, 1);
        drain_to(heap, cls, b->overflows || !keep ? 1 : keep); /* the block that stays shows a second free */
        b->overflows += !burst;
    }
    b->own.later = TICKS;
    most = b->own.slots_lg ? hak_array_most(b) : 0;
    b->own.steady = (uint16_t)(most > HAK_BIN_TICK ? hak_min(keep, most - HAK_BIN_TICK) : 0);
    set_room(heap, cls, grows ? hak_bin_part(heap, HAK_BIN_TICK) : burst ? HAK_BIN_SHORT_TICK : hak_bin_tick_now(heap));
    hak_work_add(b->own.given + 1u); /* work of the frees to come, as in a tick, and of p */
}

/* --- a thread's end ------------------------------------------------------------------------------------ */

void hak_cache_begin(struct hak_heap *heap)
{
    (void)heap;
}

/* A cache that a fork left may lie in storage that the program has written to since the thread ended (has_cache). */
void hak_cache_end(struct hak_heap *heap, unsigned cls)
{
    if (hak_heap_is_of_cpu(heap)) {
        hak_cpu_drain(heap, cls);
        return;
    }
    struct hak_bin *b = &heap->bins[cls];
    struct hak_cache *cache = heap->cache;
    size_t n = b->own.slots_lg ? (size_t)((void **)cache->bin[cls] - b->own.slots) : 0;
    if (n && n <= hak_array_most(b)) {
        hak_drain_array(heap, b->own.slots + 1, (uint32_t)n);
        count_drained(heap, cls, n);
    }
    hak_count(&heap->counters.classes[cls].served, (uint64_t)(b->own.given - hak_room_left(cache->room[cls])));
    if (b->own.slots_lg)
        hak_slots_put(heap, b->own.slots, b->own.slots_lg);
    cache->bin[cls] = (void *)hak_cache_no_slots;
    cache->room[cls] = HAK_ROOM_NEVER;
}

/* --- inspection ------------------------------------------------------------------------------------------- */

size_t hak_cache_length(const struct hak_heap *heap, unsigned cls)
{
    HAK_SHOW_FIELD(hak_cache, bin);
    HAK_SHOW_FIELD(hak_bin, own.slots);
    HAK_SHOW_FIELD(hak_bin, own.slots_lg);
    return hak_heap_is_of_cpu(heap) ? hak_cpu_length(heap, cls) : hak_array_length(&heap->bins[cls], cls);
}

void hak_cache_each(unsigned cls, void (*visit)(unsigned cls, void *block))
{
    for (void **slot = hak_self.bin[cls]; *slot; slot--)
        visit(cls, *slot);
}
