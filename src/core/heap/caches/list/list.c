/* SPDX-License-Identifier: MIT
 * See cache_bins.h. After a number of frees, a check walks the bin up to its capacity and drains the blocks freed
 * longest ago. */
#include "cache_bins.h"

#include "core/base/layout.h"
#include "core/heap/drain.h"
#include "core/heap/owned.h"
#include "core/parts/parts.h"

#define INTERVAL_MIN 8u
#define INTERVAL_FIRST 32u
#define INTERVAL_MAX (8 * HAK_BIN_TICK)
#define INTERVAL_BYTES (6 * HAK_MIB)
#define LONGEST UINT16_MAX

static uint32_t longest_interval(unsigned cls)
{
    return (uint32_t)hak_min(INTERVAL_MAX, hak_max(INTERVAL_MIN, INTERVAL_BYTES / hak_strides[cls]));
}

void hak_cache_start(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    b->own.interval = (uint16_t)hak_min(INTERVAL_FIRST, longest_interval(cls));
    hak_list_set_room(heap, cls, b->own.interval + hak_bin_part(heap, b->own.interval),
                      hak_bin_part(heap, b->own.interval));
}

bool hak_cache_give(struct hak_heap *heap, unsigned cls, hak_remote_blocks blocks, uint32_t n)
{
    (void)heap, (void)n;
    hak_self.bin[cls] = blocks;
    return true;
}

static void *take_bin(unsigned cls)
{
    void *blocks = hak_self.bin[cls];
    hak_self.bin[cls] = NULL;
    return blocks;
}

void hak_cache_leave(unsigned cls, void *p)
{
    hak_list_put(cls, p);
    hak_self.room[cls] = HAK_ROOM_NEVER;
    hak_drain(NULL, take_bin(cls));
}

/* Cuts a list behind its first `keep` blocks; returns the rest. */
static void *cut_list(void *block, uint32_t keep)
{
    for (uint32_t i = 1; block && i < keep; i++)
        block = hak_next_load(block);
    if (!block)
        return NULL;
    void *rest = hak_next_load(block);
    hak_next_store(block, NULL);
    return rest;
}

/* A bin in balance is checked less and less often; one that overflows, often. If it overflows again without a refill in
 * between, the program frees a lot: the bin keeps one block, which saves a walk. */
void hak_cache_check(struct hak_heap *heap, unsigned cls, void *p)
{
    struct hak_bin *b = &heap->bins[cls];
    uint32_t capacity = hak_parts.capacity[cls];
    uint32_t keep = b->overflows || !capacity ? 1 : capacity; /* the block that stays shows a second free */
    hak_list_put(cls, p);
    hak_owned_mark_used(heap, cls);
    hak_work_add(1);
    void *rest = cut_list(hak_self.bin[cls], keep);
    hak_count(&heap->counters.checks, 1);
    if (rest) {
        hak_count(&heap->counters.overflows, 1);
        b->overflows = 1;
        b->own.interval = (uint16_t)hak_min(longest_interval(cls), hak_max(INTERVAL_MIN, capacity));
        hak_drain(heap, rest);
    } else {
        b->own.interval = (uint16_t)hak_min(longest_interval(cls), hak_max(INTERVAL_MIN, b->own.interval * 2u));
    }
    uint32_t frees = b->own.interval - hak_bin_part(heap, b->own.interval / 4);
    hak_list_set_room(heap, cls, frees, hak_bin_part(heap, hak_bin_tick_now(heap)));
}

void hak_cache_drain(struct hak_heap *heap, unsigned cls)
{
    hak_drain(heap, take_bin(cls));
    hak_list_set_room(heap, cls, 0, 0); /* the next free is a check */
}

/* The last block of the first half; NULL if there are fewer than two, or if the list is a circle. */
static void *middle(void *first)
{
    void *half = first, *last = first ? hak_next_load(first) : NULL;
    if (!last)
        return NULL;
    while (last && last != half) {
        last = hak_next_load(last);
        if (!last)
            break;
        last = hak_next_load(last);
        half = hak_next_load(half);
    }
    return last ? NULL : half;
}

/* If a block was freed twice, the list is a circle: draining it all detects that. */
void hak_cache_halve(struct hak_heap *heap, unsigned cls)
{
    void *last = middle(hak_self.bin[cls]);
    hak_drain(heap, last ? cut_list(last, 1) : take_bin(cls));
    hak_list_set_room(heap, cls, 0, 0);
}

/* Header builds: drains what the thread freed before it had a heap. */
void hak_cache_begin(struct hak_heap *heap)
{
    for (unsigned cls = 0; HAK_HEADER_LIMIT && cls < HAK_NCLASSES; cls++)
        hak_cache_drain(heap, cls);
}

void hak_cache_end(struct hak_heap *heap, unsigned cls)
{
    hak_drain(heap, take_bin(cls));
    hak_self.room[cls] = HAK_ROOM_NEVER;
}

/* No bin is as long as LONGEST, unless it is a circle. */
static size_t list_length(const void *blocks)
{
    size_t n = 0;
    for (; blocks && n < LONGEST; blocks = hak_next_load(blocks))
        n++;
    return n;
}

size_t hak_cache_length(const struct hak_heap *heap, unsigned cls)
{
    (void)heap;
    HAK_SHOW_FIELD(hak_cache, bin);
    return list_length(hak_self.bin[cls]);
}

void hak_cache_each(unsigned cls, void (*visit)(unsigned cls, void *block))
{
    for (void *block = hak_self.bin[cls], *next; block; block = next) {
        next = hak_next_load(block);
        visit(cls, block);
    }
}
