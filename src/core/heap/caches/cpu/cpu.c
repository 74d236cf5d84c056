/* SPDX-License-Identifier: MIT
 * See cpu.h. The slow path's use of arrays. It moves many blocks at once by sequences to and from the arrays of the CPU
 * on which it runs, even if the kernel has moved the thread to another CPU since it entered the heap. If sequences are
 * off, it accesses the heap's arrays plainly. */
#include "cpu.h"

#include "core/base/layout.h"
#include "core/base/log.h"
#include "core/base/work.h"
#include "core/heap/caches/contract.h"
#include "core/heap/drain.h"
#include "core/heap/owned.h"
#include "core/os/meta.h"
#include "core/pages/block_batch.h"
#include "core/pages/space.h"
#include "core/parts/parts.h"

#define TRANSFER 256u /* most blocks that move at once */
#define TICK 128u     /* frees of a class between two checks, less up to a half at random */

/* --- which arrays -------------------------------------------------------------------------------------- */

static void *no_slots[1];
static struct hak_arrays closed;
struct hak_arrays *hak_arrays_of[HAK_CPUS_UNREAL + HAK_CPUS];
bool hak_has_sequences;

/* Sequences read this, and only on that CPU. */
void hak_arrays_open(unsigned cpu, struct hak_arrays *arrays)
{
    if (hak_has_sequences)
        __atomic_store_n(&hak_arrays_of[HAK_CPUS_UNREAL + cpu], arrays, __ATOMIC_RELEASE);
}

unsigned hak_arrays_start(void)
{
    unsigned cpus = HAK_SEQUENCES ? hak_rseq_find() : 0;
    hak_has_sequences = cpus != 0;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        closed.top[cls] = closed.end[cls] = no_slots;
    for (unsigned i = 0; cpus && i < HAK_CPUS_UNREAL + cpus; i++)
        hak_arrays_of[i] = &closed;
    if (cpus)
        hak_rseq_switch_on();
    return cpus;
}

/* Beyond the capacity there are slots for frees until the next check. A class of large blocks has a small capacity, so
 * that else each second free would be a check. */
static size_t slots_of(unsigned cls)
{
    size_t stride = hak_strides[cls];
    return hak_parts.capacity[cls] + (stride <= 256 ? 64u : stride <= 8192 ? 32u : 62u);
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
    if (!hak_has_sequences)
        return true;
    struct hak_arrays *arrays = hak_arrays_of[HAK_CPUS_UNREAL + cpu];
    hak_arrays_open(cpu, &closed);
    if (hak_rseq_fence((int)cpu))
        return true;
    hak_arrays_open(cpu, arrays);
    return false;
}

void hak_cache_fail_twice(const void *p)
{
    hak_slab_fail_free(hak_space_slab_of_block(p), p);
}

void hak_cpu_fail_mark(const void *p)
{
    hak_log_fatal("double free or corruption: block %p is free, and was written to", p);
}

/* This comes before the room, which each free counts down, wraps around. */
void hak_cpu_leave(unsigned cls)
{
    __atomic_store_n(&closed.room[cls], 0, __ATOMIC_RELAXED);
}

/* --- transfers --------------------------------------------------------------------------------------------- */

HAK_SNAPSHOT uint32_t hak_cpu_length(const struct hak_heap *heap, unsigned cls)
{
    const struct hak_arrays *a = heap->arrays;
    HAK_SHOW_FIELD(hak_heap, arrays);
    HAK_SHOW_FIELD(hak_arrays, top);
    HAK_SHOW_FIELD(hak_arrays, end);
    HAK_SHOW_SIZE(hak_arrays);
    void *const *slot = __atomic_load_n(&a->top[cls], __ATOMIC_RELAXED); /* other threads may use the array now */
    return (uint32_t)(slot - (cls ? a->end[cls - 1] + 1 : a->slots));
}

static uint32_t pop_plainly(struct hak_arrays *a, unsigned cls, void **blocks, uint32_t n)
{
    uint32_t i = 0;
    for (; i < n && *a->top[cls]; i++)
        blocks[i] = *a->top[cls]--;
    return i;
}

static uint32_t push_plainly(struct hak_arrays *a, unsigned cls, void *const *blocks, uint32_t n)
{
    uint32_t i = 0;
    for (; i < n && a->top[cls] != a->end[cls]; i++)
        *++a->top[cls] = blocks[i];
    return i;
}

static void take_marks(void *const *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        hak_cpu_take_mark(blocks[i]);
}

/* Pops up to n blocks, the one pushed last first. */
static HAK_NOINLINE uint32_t pop_some(struct hak_heap *heap, unsigned cls, void **blocks, uint32_t n)
{
    n = hak_has_sequences ? hak_rseq_pop_some(cls, blocks, n) : pop_plainly(heap->arrays, cls, blocks, n);
    take_marks(blocks, n);
    return n;
}

static uint32_t push_by_sequence(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    bool waits = HAK_UNLIKELY(HAK_LOAD_RELAXED(&hak_purge_waits));
    return hak_rseq_push_some(cls, blocks, n, waits ? HAK_BIN_SHORT_TICK : TICK - (hak_bin_random(heap) >> 26));
}

/* Pushes up to n blocks; returns how many found slots. The last one of them is popped first. */
static HAK_NOINLINE uint32_t push_some(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        *(uint64_t *)blocks[i] = hak_cpu_mark(blocks[i]);
    uint32_t pushed =
        hak_has_sequences ? push_by_sequence(heap, cls, blocks, n) : push_plainly(heap->arrays, cls, blocks, n);
    take_marks(blocks + pushed, n - pushed);
    return pushed;
}

static void push_or_drain(struct hak_heap *heap, unsigned cls, void *const *blocks, uint32_t n)
{
    uint32_t pushed = push_some(heap, cls, blocks, n);
    if (pushed < n)
        hak_drain_array(heap, blocks + pushed, n - pushed);
}

/* --- filling ------------------------------------------------------------------------------------------- */

void *hak_cpu_take_one(struct hak_heap *heap, unsigned cls)
{
    void *p = NULL;
    pop_some(heap, cls, &p, 1);
    return p;
}

/* Other threads may pop from a CPU's array, so the block for the caller does not go there. */
uint32_t hak_cpu_take(struct hak_heap *heap, unsigned cls, struct hak_slab *slab, uint32_t want)
{
    void *blocks[TRANSFER];
    uint32_t n = (hak_block_batches_open(slab) ? hak_slab_take_to_slots : hak_block_batches_take_closed)(
        slab, (uint32_t)hak_min(want, TRANSFER), blocks);
    bool keeps = n && !heap->kept;
    if (keeps)
        heap->kept = blocks[n - 1];
    push_or_drain(heap, cls, blocks, n - keeps);
    return n;
}

void *hak_cpu_taken(struct hak_heap *heap, unsigned cls)
{
    void *p = heap->kept;
    heap->kept = NULL;
    return p ? p : hak_cpu_take_one(heap, cls);
}

/* --- emptying ------------------------------------------------------------------------------------------ */

/* Puts `keep` of n popped blocks back, those freed last; the others return to their slabs. The block freed last comes
 * first. */
static void keep_newest(struct hak_heap *heap, unsigned cls, void **blocks, uint32_t n, uint32_t keep)
{
    if (n > keep)
        hak_drain_array(heap, blocks + keep, n - keep);
    for (uint32_t i = 0; i < keep / 2; i++) {
        void *p = blocks[i];
        blocks[i] = blocks[keep - 1 - i];
        blocks[keep - 1 - i] = p;
    }
    push_or_drain(heap, cls, blocks, keep);
}

/* The array holds its capacity: half of the blocks of one transfer return to their slabs. If the array was not refilled
 * since it was last full, the program frees a lot: then all of them return. */
static void make_array_room(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    void *blocks[TRANSFER];
    uint32_t n = pop_some(heap, cls, blocks, (uint32_t)hak_min(TRANSFER, slots_of(cls)));
    uint32_t keep = b->overflows ? 0 : n / 2;
    if (n > keep) {
        hak_count(&heap->counters.overflows, 1);
        b->overflows = 1;
    }
    keep_newest(heap, cls, blocks, n, keep);
}

void hak_cpu_check(struct hak_heap *heap, unsigned cls, void *p)
{
    hak_owned_mark_used(heap, cls);
    hak_count(&heap->counters.checks, 1);
    hak_work_add(hak_has_sequences ? TICK * 3 / 4 : 1); /* the mean */
    if (HAK_UNLIKELY(*__atomic_load_n(&heap->arrays->top[cls], __ATOMIC_RELAXED) == p))
        hak_cache_fail_twice(p);
    if (hak_cpu_length(heap, cls) >= hak_parts.capacity[cls] || !push_some(heap, cls, &p, 1)) {
        make_array_room(heap, cls);
        push_or_drain(heap, cls, &p, 1);
    }
}

void hak_cpu_halve(struct hak_heap *heap, unsigned cls)
{
    void *blocks[TRANSFER];
    uint32_t n = pop_some(heap, cls, blocks, TRANSFER);
    keep_newest(heap, cls, blocks, n, n / 2);
}

void hak_cpu_drain(struct hak_heap *heap, unsigned cls)
{
    void *blocks[TRANSFER];
    for (uint32_t n; (n = pop_plainly(heap->arrays, cls, blocks, TRANSFER));) {
        take_marks(blocks, n);
        hak_drain_array(heap, blocks, n);
    }
    heap->arrays->room[cls] = 0; /* the next free is a check, which marks the class as used */
}
