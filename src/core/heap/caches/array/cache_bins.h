/* SPDX-License-Identifier: MIT
 * The cache `array`: a bin is an array of pointers to free blocks. If a slab has a bitmap, neither malloc nor free,
 * neither a refill nor a drain touches its free blocks: so what a program writes to a block after free has no effect
 * here, and cold blocks cost no cache miss.
 *
 * The first slot is NULL, so that malloc detects an empty bin by the load that it needs anyway. A bin's room never
 * exceeds the slots behind its last block; so free() counts down first, and at zero the slow path takes the block. A
 * bin has no slots before its first use: then it points to a shared NULL, and has no room. */
#ifndef HAK_CACHE_BINS_H
#define HAK_CACHE_BINS_H

#include "core/heap/caches/contract.h"
#include "core/heap/caches/cpu/cpu.h"
#include "core/heap/caches/slots/remote.h"
#include "core/pages/mark.h"
#include "core/parts/parts.h"

#define HAK_ARRAY_FREES 64u /* slots beyond the capacity, once the thread uses the class a lot */

/* Moves the end of a bin by one slot; what the compiler finds before or after this stays there, since another thread
 * may fork in between. In C, gcc would use one more instruction, since it keeps the value that it loaded. */
HAK_INLINE void hak_array_move(hak_cache_ref self, uint64_t cls, const int slots)
{
#if HAK_CACHE_BY_SEGMENT
    __asm__("addq %[by], %%fs:%c[bin](%[self],%[cls], 8)"
            :
            : [self] "r"((uintptr_t)self), [cls] "r"(cls), [bin] "i"(offsetof(struct hak_cache, bin)),
              [by] "i"(slots * (int)sizeof(void *))
            : "memory", "cc");
#else
    HAK_KEEP_ORDER();
    self->bin[cls] = (void **)self->bin[cls] + slots;
    HAK_KEEP_ORDER();
#endif
}

HAK_INLINE void *hak_cache_pop(hak_cache_ref self, unsigned cls)
{
    uint64_t i = cls;
    void *p = *(void **)self->bin[i];
    if (HAK_UNLIKELY(!p))
        return NULL;
    hak_array_move(self, i, -1);
    return p;
}

HAK_INLINE void *hak_cache_try_pop(hak_cache_ref self, unsigned cls)
{
    uint64_t i = cls;
    void *p = *(void **)self->bin[i];
    if (HAK_UNLIKELY(!p || !hak_mark_is_whole(p, cls)))
        return NULL;
    hak_array_move(self, i, -1);
    return p;
}

/* Counts a free of p. True: it has no room, or is the block of the last slot, which was freed last. */
HAK_INLINE bool hak_array_spend(hak_cache_ref self, uint64_t cls, void *const *last, const void *p)
{
#if HAK_CACHE_BY_SEGMENT
    bool due;
    __asm__("cmpq %[last], %[p]\n\t"
            "rorq $1, %%fs:%c[room](%[self], %[cls], 8)"
            : "=@ccbe"(due)
            : [last] "m"(*last), [p] "r"(p), [self] "r"((uintptr_t)self), [cls] "r"(cls),
              [room] "i"(offsetof(struct hak_cache, room))
            : "memory");
    return due;
#else
    return hak_room_spend(&self->room[cls]) || *last == p;
#endif
}

HAK_INLINE bool hak_cache_push(hak_cache_ref self, uint64_t cls, void *p)
{
    void **last = self->bin[cls];
    if (HAK_UNLIKELY(hak_array_spend(self, cls, last, p)))
        return false;
    last[1] = p;
    hak_array_move(self, cls, 1);
    return true;
}

/* Blocks in the calling thread's bin. */
HAK_INLINE uint32_t hak_array_length(const struct hak_bin *b, unsigned cls)
{
    return b->own.slots_lg ? (uint32_t)((void **)hak_self.bin[cls] - b->own.slots) : 0;
}

/* The most blocks that the slots can hold: the first one holds none. */
HAK_INLINE uint32_t hak_array_most(const struct hak_bin *b)
{
    return (1u << b->own.slots_lg) - 1;
}

/* Gives the bin room for `room` frees, and counts the frees since the last call. */
HAK_INLINE void hak_array_set_room(struct hak_heap *heap, unsigned cls, uint32_t room)
{
    struct hak_bin *b = &heap->bins[cls];
    hak_count(&heap->counters.classes[cls].served, (uint64_t)(b->own.given - hak_room_left(hak_self.room[cls])));
    b->own.given = (uint16_t)room;
    hak_self.room[cls] = hak_room(room);
}

/* Called when the room is used up. If no check is due, the bin does not exceed its capacity, and it has slots for
 * another tick's frees, a tick only counts work. Ticks are frequent, so they take few instructions. */
HAK_INLINE bool hak_cache_tick(struct hak_heap *heap, unsigned cls, void *p)
{
    struct hak_bin *b = &heap->bins[cls];
    void **end = hak_self.bin[cls];
    if (end - b->own.slots >= b->own.steady || HAK_UNLIKELY(HAK_LOAD_RELAXED(&hak_purge_waits)))
        return false;
    if (!--b->own.later)
        b->own.steady = 0;
    end[1] = p;
    HAK_KEEP_ORDER();
    hak_self.bin[cls] = end + 1;
    uint32_t room = hak_bin_tick(heap);
    hak_self.room[cls] = hak_room(room);
    b->own.given = (uint16_t)(b->own.given + 1 + room); /* these frees, and p, are counted with the next ones */
    hak_work_add(room);
    return true;
}

HAK_INLINE void *hak_cache_first(unsigned cls)
{
    return *(void **)hak_self.bin[cls];
}

uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly);

HAK_INLINE bool hak_cache_can_hold(const struct hak_heap *heap, unsigned cls)
{
    return hak_heap_is_of_cpu(heap) || heap->bins[cls].own.slots_lg != 0;
}

HAK_INLINE void *hak_cache_pop_again(struct hak_heap *heap, unsigned cls)
{
    return hak_heap_is_of_cpu(heap) ? hak_cpu_take_one(heap, cls) : hak_cache_pop(hak_cache_here(), cls);
}

HAK_INLINE void *hak_cache_taken(struct hak_heap *heap, unsigned cls)
{
    return hak_heap_is_of_cpu(heap) ? hak_cpu_taken(heap, cls) : hak_cache_pop(hak_cache_here(), cls);
}

#endif
