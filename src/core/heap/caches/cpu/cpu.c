/* SPDX-License-Identifier: MIT
 * See cpu.h. The slow path's use of arrays. It moves many blocks at once by sequences to and from the arrays of its
 * CPU. Arrays of a thread, if sequences are off, and those of a new CPU it accesses plainly. */
#include "cpu.h"

#include "core/base/layout.h"
#include "core/heap/drain.h"
#include "core/heap/owned.h"
#include "core/heap/share.h"
#include "core/pages/block_batch.h"
#include "core/pages/space.h"

#define THREAD_SLOTS 63u /* most slots for blocks of a class in the arrays of a thread */
#define TRANSFER 256u    /* most blocks that move at once */

/* --- which arrays -------------------------------------------------------------------------------------- */

struct hak_arrays *hak_arrays_of[HAK_CPUS_UNREAL + HAK_OWNERS] = {&hak_arrays_closed, &hak_arrays_closed};

/* Sequences read this, and only on that CPU, or in that thread. */
void hak_arrays_open(unsigned number, struct hak_arrays *arrays)
{
    __atomic_store_n(&hak_arrays_of[HAK_CPUS_UNREAL + number], arrays, __ATOMIC_RELEASE);
}

unsigned hak_arrays_start(void)
{
    unsigned cpus = hak_rseq_find();
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        hak_arrays_open(cpu, &hak_arrays_closed);
    hak_heaps_of_cpus = cpus != 0;
    if (cpus)
        hak_rseq_switch_on();
    return cpus;
}

/* A thread gets fewer slots than a CPU, since there may be many threads. */
static size_t slots_of(unsigned cls)
{
    size_t slots = 2u * hak_parts.capacity[cls];
    return hak_heaps_are_of_cpus() ? slots : hak_min(slots, THREAD_SLOTS);
}

struct hak_arrays *hak_arrays_new(void)
{
    size_t slots = HAK_NCLASSES;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        slots += slots_of(cls);
    struct hak_arrays *a = hak_meta_alloc(sizeof *a + slots * sizeof *a->slots);
    void **first = a ? a->slots : NULL;
    for (unsigned cls = 0; a && cls < HAK_NCLASSES; cls++) {
        a->top[cls] = first;
        a->end[cls] = first + slots_of(cls);
        first = a->end[cls] + 1;
    }
    return a;
}

bool hak_arrays_close(unsigned cpu)
{
    struct hak_arrays *arrays = hak_arrays_of[HAK_CPUS_UNREAL + cpu];
    hak_arrays_open(cpu, &hak_arrays_closed);
    if (hak_rseq_fence((int)cpu))
        return true;
    hak_arrays_open(cpu, arrays);
    return false;
}

void hak_cache_fail_twice(const void *p)
{
    hak_slab_fail_free(hak_space_slab_of_block(p), p);
}

/* --- transfers --------------------------------------------------------------------------------------------- */

HAK_INLINE uint32_t array_length(const struct hak_arrays *a, unsigned cls)
{
    void *const *slot = __atomic_load_n(&a->top[cls], __ATOMIC_RELAXED); /* the arrays may be a CPU's, in use */
    return (uint32_t)(slot - (cls ? a->end[cls - 1] + 1 : a->slots));
}

static uint32_t pop_plainly(struct hak_arrays *a, unsigned cls, void **blocks, uint32_t n)
{
    uint32_t i = 0;
    for (; i < n && *a->top[cls]; i++)
        blocks[i] = *a->top[cls]--;
    return i;
}

static uint32_t array_limit(const struct hak_bin *b, unsigned cls)
{
    uint32_t slots = (uint32_t)slots_of(cls);
    return hak_share_is_on(b, cls) ? (uint32_t)hak_min(slots, 2 * hak_share_capacity(cls) + 1) : slots;
}

static uint32_t push_plainly(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    struct hak_arrays *a = hak_self.arrays;
    uint32_t i = 0, limit = array_limit(&heap->bins[cls], cls);
    for (; i < n && a->top[cls] != a->end[cls]; i++)
        *++a->top[cls] = blocks[i];
    uint32_t length = array_length(a, cls);
    a->room[cls] = (int32_t)(length < limit ? hak_min(limit - length, hak_bin_tick_now(heap)) : 0);
    return i;
}

/* Whether the arrays are the thread's own, or new ones of a CPU, which no other thread can reach yet. */
static bool has_plain_arrays(void)
{
    return hak_self.arrays != &hak_arrays_closed;
}

static uint32_t mark_taken(void **blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        __tsan_acquire(blocks[i]);
    return n;
}

/* Pops up to n blocks, the one pushed last first. */
static uint32_t pop_some(unsigned cls, void **blocks, uint32_t n)
{
    return mark_taken(blocks, has_plain_arrays() ? pop_plainly(hak_self.arrays, cls, blocks, n)
                                                 : hak_rseq_pop_some(cls, blocks, n));
}

/* Pushes up to n blocks; returns how many found slots. The last one of them is popped first. */
static uint32_t push_some(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        __tsan_release(blocks[i]);
    return has_plain_arrays() ? push_plainly(heap, cls, blocks, n)
                              : hak_rseq_push_some(cls, blocks, n, hak_bin_tick_now(heap));
}

static void push_or_drain(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    uint32_t pushed = push_some(heap, cls, blocks, n);
    if (pushed < n)
        hak_drain_array(heap, blocks + pushed, n - pushed);
}

/* The same, so that the first block is popped first. */
static void push_reversed(struct hak_heap *heap, unsigned cls, void **blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        void *p = blocks[i];
        blocks[i] = blocks[n - 1 - i];
        blocks[n - 1 - i] = p;
    }
    push_or_drain(heap, cls, blocks, n);
}

/* --- filling ------------------------------------------------------------------------------------------- */

void hak_cache_start(struct hak_heap *heap, unsigned cls)
{
    hak_owned_mark_used(heap, cls);
}

void *hak_cache_pop_again(unsigned cls)
{
    void *p = NULL;
    if (!has_plain_arrays())
        return hak_cache_pop(hak_cache_here(), cls);
    pop_plainly(hak_self.arrays, cls, &p, 1);
    return p;
}

/* Other threads may pop from a CPU's array, so the block for the caller does not go there. */
static void *keep_one(struct hak_heap *heap, void *p)
{
    if (has_plain_arrays() || heap->kept)
        return p;
    heap->kept = p;
    return NULL;
}

static void fill_bin(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    push_or_drain(heap, cls, blocks, n - !keep_one(heap, blocks[n - 1]));
}

uint32_t hak_cache_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want, bool exactly)
{
    void *blocks[TRANSFER];
    (void)exactly;
    uint32_t n = (hak_block_batches_open(slab) ? hak_slab_take_to_slots : hak_block_batches_take_closed)(
        slab, (uint32_t)hak_min(want, TRANSFER), blocks);
    fill_bin(heap, cls, blocks, n);
    return n;
}

bool hak_cache_give(struct hak_heap *heap, unsigned cls, hak_remote_blocks blocks, uint32_t n)
{
    fill_bin(heap, cls, blocks, n);
    return true;
}

void *hak_cache_taken(struct hak_heap *heap, unsigned cls)
{
    void *p = heap->kept;
    heap->kept = NULL;
    return p ? p : hak_cache_pop_again(cls);
}

/* --- emptying ------------------------------------------------------------------------------------------ */

/* Resets the room before it wraps around. */
static void reset_closed(unsigned cls)
{
    __atomic_store_n(&hak_arrays_closed.room[cls], 0, __ATOMIC_RELAXED);
}

void hak_cache_leave(unsigned cls, void *p)
{
    reset_closed(cls);
    hak_drain_array(NULL, &p, 1);
}

/* Puts `keep` of n popped blocks back, those freed last; the others return to their slabs. The block freed last comes
 * first. */
static void keep_newest(struct hak_heap *heap, unsigned cls, void **blocks, uint32_t n, uint32_t keep)
{
    if (n > keep)
        hak_drain_array(heap, blocks + keep, n - keep);
    push_reversed(heap, cls, blocks, keep);
}

/* With few free slots each free would soon be a check, however the program frees and allocates in turn. */
static bool is_almost_full(const struct hak_heap *heap, unsigned cls)
{
    size_t limit = has_plain_arrays() ? array_limit(&heap->bins[cls], cls) : slots_of(cls);
    return hak_cache_retired_length(heap, cls) >= limit - limit / 4;
}

/* The array is almost full: half of the blocks of one transfer return to their slabs. If the array was not refilled
 * since it was last full, the program frees a lot: then all of them return. */
static void make_array_room(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    void *blocks[TRANSFER];
    uint32_t n = pop_some(cls, blocks, (uint32_t)hak_min(TRANSFER, slots_of(cls)));
    uint32_t most = hak_share_is_on(b, cls) ? hak_share_capacity(cls) : n / 2;
    uint32_t keep = b->overflows ? 0 : (uint32_t)hak_min(most, n);
    if (n > keep) {
        hak_count(&heap->counters.overflows, 1);
        b->overflows = 1;
    }
    keep_newest(heap, cls, blocks, n, keep);
}

void hak_cache_check(struct hak_heap *heap, unsigned cls, void *p)
{
    hak_owned_mark_used(heap, cls);
    hak_count(&heap->counters.checks, 1);
    hak_work_add(HAK_BIN_TICK * 3 / 4); /* the mean */
    reset_closed(cls);
    if (!is_almost_full(heap, cls) && push_some(heap, cls, &p, 1))
        return;
    make_array_room(heap, cls);
    push_or_drain(heap, cls, &p, 1);
}

void hak_cache_halve(struct hak_heap *heap, unsigned cls)
{
    void *blocks[TRANSFER];
    uint32_t n = pop_some(cls, blocks, TRANSFER);
    keep_newest(heap, cls, blocks, n, n / 2);
}

void hak_cache_drain(struct hak_heap *heap, unsigned cls)
{
    void *blocks[TRANSFER];
    for (uint32_t n; (n = pop_some(cls, blocks, TRANSFER));)
        hak_drain_array(heap, blocks, n);
}

/* --- the end of a thread, an idle CPU ------------------------------------------------------------------ */

/* Only threads' heaps retire and resume: sequences are off. A heap keeps its arrays and their number. */
void hak_cache_retire(struct hak_heap *heap)
{
    if (heap->cache == &hak_self) /* else a fork left it */
        hak_rseq_set_none(-1);
    heap->cache->arrays = &hak_arrays_closed;
}

/* Without memory, and with more heaps than numbers, the thread finds closed arrays. */
void hak_cache_resume(struct hak_heap *heap)
{
    static _Atomic(unsigned) numbered;
    if (!heap->number)
        heap->number = HAK_ADD_RELAXED(&numbered, 1) + 1;
    if (!heap->arrays && heap->number < HAK_OWNERS)
        hak_arrays_open(heap->number, heap->arrays = hak_arrays_new());
    if (!heap->arrays)
        return;
    hak_self.arrays = heap->arrays;
    hak_rseq_set_none((int32_t)heap->number);
}

void hak_cache_drain_retired(struct hak_heap *heap, unsigned cls)
{
    void *blocks[TRANSFER];
    for (uint32_t n; heap->arrays && (n = mark_taken(blocks, pop_plainly(heap->arrays, cls, blocks, TRANSFER)));)
        hak_drain_array(heap, blocks, n);
    if (heap->arrays)
        heap->arrays->room[cls] = 0; /* the next owner's first free is a check, which marks the class as used */
}

/* --- inspection ------------------------------------------------------------------------------------------- */

/* Of a CPU in use, too. */
HAK_SNAPSHOT size_t hak_cache_retired_length(const struct hak_heap *heap, unsigned cls)
{
    const struct hak_arrays *arrays = __atomic_load_n(&heap->arrays, __ATOMIC_ACQUIRE);
    HAK_SHOW_FIELD(hak_heap, arrays);
    HAK_SHOW_FIELD(hak_arrays, top);
    HAK_SHOW_FIELD(hak_arrays, end);
    HAK_SHOW_SIZE(hak_arrays);
    return arrays ? array_length(arrays, cls) : 0;
}

size_t hak_cache_length(unsigned cls)
{
    return has_plain_arrays() ? array_length(hak_self.arrays, cls) : 0;
}

void hak_cache_each(unsigned cls, void (*visit)(unsigned cls, void *block))
{
    for (void **slot = hak_self.arrays->top[cls]; *slot; slot--)
        visit(cls, *slot);
}
