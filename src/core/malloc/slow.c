/* SPDX-License-Identifier: MIT
 * See slow.h. */
#include "slow.h"

#include <string.h>

#include "arenas.h"
#include "block.h"
#include "core/base/log.h"
#include "core/base/probe.h"
#include "core/heap/caches/cpu/cpu.h"
#include "core/heap/drain.h"
#include "core/heap/enter.h"
#include "core/heap/heaps.h"
#include "core/heap/quarantine.h"
#include "core/heap/refill.h"
#include "core/heap/remote_cache.h"
#include "core/os/limit.h"
#include "core/pages/budget.h"
#include "core/pages/guard.h"
#include "core/pages/mark.h"
#include "core/pages/run_cache.h"
#include "core/pages/space.h"
#include "core/pages/zero.h"
#include "core/parts/parts.h"
#include "core/process/life.h"
#include "core/process/maintenance.h"
#include "trim.h"

HAK_OPTIONAL(hak_arena_free);
HAK_OPTIONAL(hak_default_alloc);

/* --- malloc: the library is initialised below the entries --------------------------------------------- */

static void *refill_or_orphan(struct hak_heap *heap, unsigned cls, enum hak_refill_mode mode)
{
    if (HAK_LIKELY(heap))
        return hak_bin_refill(heap, cls, mode);
    struct hak_heap *orphan = hak_orphan_acquire();
    void *p = hak_bin_take_one(orphan, cls, mode);
    hak_orphan_release();
    return p;
}

static void *serve(unsigned cls, bool may_fall_back)
{
    struct hak_heap *heap = hak_heap_enter();
    bool shared = heap && hak_heap_is_of_cpu(heap);
    /* without sequences; or another thread has filled it; or, hardened, a damaged block, which the fast path left */
    void *p = heap ? hak_cache_pop_again(heap, cls) : NULL;
    if (shared && !p && may_fall_back)
        p = hak_bin_fall_back(heap, cls);
    if (!p)
        p = refill_or_orphan(heap, cls, HAK_REFILL_WITHIN_BUDGET);
    hak_heap_leave(heap);
    return p;
}

static HAK_COLD void *serve_from_room(unsigned cls)
{
    if (!hak_make_room(hak_slab_pages[cls] * HAK_PAGE))
        return NULL;
    struct hak_heap *heap = hak_heap_enter();
    void *p = refill_or_orphan(heap, cls, HAK_REFILL_BEYOND_BUDGET);
    hak_heap_leave(heap);
    return p;
}

static void *alloc_small(unsigned cls, bool may_fall_back)
{
    void *p = serve(cls, may_fall_back);
    if (HAK_UNLIKELY(!p) && !hak_bin_is_within_budget(cls))
        p = serve_from_room(cls);
    if (HAK_LIKELY(p)) {
        hak_mark_check_whole(p, cls);
        hak_mark_clear(p, cls);
    }
    return p;
}

/* If the address space is limited, unmaps free memory for a request that the kernel refused. False: there was none.
 */
static HAK_COLD bool make_way(size_t size)
{
    struct hak_space_stats before, after;
    size_t limit = hak_limit();
    if (limit == SIZE_MAX || size > limit)
        return false;
    hak_space_stats(&before);
    hak_trim(0);
    hak_space_stats(&after);
    return after.mapped < before.mapped;
}

static HAK_COLD void *alloc_span_again(size_t size, size_t align, bool zero)
{
    bool is_possible = (size | align) <= PTRDIFF_MAX && hak_init();
    is_possible = is_possible && hak_budget_is_possible(size);
    void *p = is_possible && make_way(size) ? hak_parts.spans->span_alloc(size, align, zero) : NULL;
    if (!p)
        errno = ENOMEM;
    return p;
}

/* The program may use a long block for so long that the next call should look at the clock. */
HAK_INLINE void add_span_work(size_t size)
{
    hak_work_add((uint32_t)hak_min(HAK_SPAN_WORK + size / HAK_PAGE, HAK_WORK_MAX));
}

static HAK_NOINLINE void *alloc_span(size_t size, size_t align, bool zero)
{
    void *p = NULL;
    if (HAK_UNLIKELY(hak_suspended))
        return hak_default_alloc(size, align, zero);
    if (HAK_LIKELY(hak_init()) && (size | align) <= PTRDIFF_MAX) {
        hak_thread_heap(); /* a trim may have requested a flush of this thread's bins */
        add_span_work(size);
        if (HAK_LIKELY(hak_budget_allows(size)) || hak_make_room(size))
            p = hak_parts.spans->span_alloc(size, align, zero);
    }
    hak_maintain();
    return HAK_LIKELY(p) ? p : alloc_span_again(size, align, zero);
}

/* The usual case of a large block: the span of its length that was freed last. It is in the budget, and free counts the
 * work of both. NULL: none waits, or the thread has no heap. */
HAK_INLINE struct hak_slab *take_waiting_span(size_t size)
{
    struct hak_heap *heap = hak_self.heap;
    struct hak_slab *span = NULL;
    if (!HAK_HARDENED && HAK_LIKELY(heap))
        span = hak_run_cache_take_last(HAK_RUNS_SPANS, (size + HAK_PAGE - 1) / HAK_PAGE);
    if (HAK_UNLIKELY(!span))
        return NULL;
    size_t requested = hak_align_up(size, HAK_SYSTEM_PAGE);
    if (HAK_UNLIKELY(span->requested != requested)) {
        hak_count(&heap->counters.allocated, requested - span->requested);
        span->requested = requested;
    }
    hak_count(&heap->counters.transitions[HAK_SLAB_UNUSED][HAK_SLAB_SPAN], 1);
    HAK_STORE_RELEASE(&span->word, HAK_SLAB_SPAN);
    return span;
}

/* No slab is available for a small size: fall back to a span. */
static HAK_COLD void *alloc_small_in_span(size_t size)
{
    if (hak_options.ace_trace)
        hak_log("ACE Exhaustion: %zu bytes, no slab of its class; a span of its own, if there is one", size);
    hak_block_note_larger();
    return alloc_span(hak_max(size, 1), 1, false);
}

HAK_INLINE void *malloc_slowly(size_t size)
{
    void *p = size ? NULL : hak_zero_alloc();
    if (!p)
        p = alloc_small(hak_class_of(size), true);
    return HAK_LIKELY(p) ? p : alloc_small_in_span(size);
}

static HAK_NOINLINE void *malloc_small_slow(size_t size, const void *caller)
{
    void *p = NULL;
    if (HAK_UNLIKELY(hak_suspended))
        return hak_default_alloc(size, 1, false);
    if (HAK_LIKELY(hak_init())) {
        if (HAK_UNLIKELY(hak_options.guard_rate))
            p = hak_guard_sample(size - hak_min(size, HAK_CANARY), caller); /* a guarded block has no canary */
        if (HAK_LIKELY(!p))
            p = malloc_slowly(size);
    }
    hak_maintain();
    if (HAK_UNLIKELY(!p))
        errno = ENOMEM;
    return p;
}

/* Takes a free block of a larger class. This comes before all else, since threads that use few blocks of many classes
 * come here often. */
HAK_INLINE void *take_larger(size_t size)
{
    struct hak_heap *heap = hak_self.heap;
    if (size < HAK_FALLBACK_MIN || HAK_UNLIKELY(!heap || hak_options.guard_rate))
        return NULL;
    unsigned cls = hak_class_of(size);
    hak_heap_begin_change(heap);
    void *p = hak_bin_fall_back(heap, cls);
    hak_heap_end_change(heap);
    if (!p)
        return NULL;
    hak_mark_check_whole(p, cls);
    hak_mark_clear(p, cls);
    hak_maintain();
    return p;
}

/* A light thread's first attempt: a block of its CPU's arrays, without a lock. */
HAK_INLINE void *pop_light(unsigned cls)
{
    void *p = HAK_CPU_HEAPS && hak_self.light ? hak_rseq_pop(cls) : NULL;
    if (p)
        hak_cpu_take_mark(p);
    return p;
}

void *hak_malloc_slow(size_t size)
{
    if (size > HAK_SMALL_MAX)
        return hak_malloc_large(size);
    void *p = pop_light(hak_class_of(size));
    if (p)
        return p;
    p = take_larger(size);
    if (!p)
        p = malloc_small_slow(size, __builtin_return_address(0));
    HAK_PROBE(malloc_slow, size, p);
    return p;
}

/* A thread with a heap has initialised the library. */
static HAK_NOINLINE void *malloc_span(size_t size)
{
    const struct hak_heap *heap = hak_self.heap;
    bool usual = heap && heap->flush_done == HAK_LOAD_RELAXED(&hak_flush_request) && size <= PTRDIFF_MAX;
    void *p;
    if (HAK_LIKELY(usual && hak_budget_allows(size))) {
        p = hak_parts.spans->span_alloc(size, 1, false);
        add_span_work(size);
        hak_maintain();
        p = HAK_LIKELY(p) ? p : alloc_span_again(size, 1, false);
    } else {
        p = alloc_span(size, 1, false);
    }
    HAK_PROBE(malloc_slow, size, p);
    return p;
}

void *hak_malloc_large(size_t size)
{
    const struct hak_slab *span = take_waiting_span(size);
    if (HAK_UNLIKELY(!span))
        return malloc_span(size);
    HAK_PROBE(malloc_slow, size, span->base);
    return span->base;
}

void *hak_alloc_class(unsigned cls)
{
    void *p = pop_light(cls);
    if (!p && hak_init())
        p = alloc_small(cls, false);
    hak_maintain();
    return p;
}

void *hak_alloc_zeroed_slow(size_t size)
{
    if (size > HAK_SMALL_MAX)
        return alloc_span(size, 1, true);
    void *p = hak_malloc_slow(size);
    return p ? memset(p, 0, size) : NULL;
}

void *hak_alloc_aligned_slow(size_t align, size_t size)
{
    if (HAK_UNLIKELY(hak_suspended))
        return hak_default_alloc(size, align, false);
    unsigned cls = hak_class_of_aligned(align, size);
    void *p = cls < HAK_NCLASSES ? hak_alloc_class(cls) : NULL;
    return p ? p : alloc_span(hak_max(size, 1), align, false); /* or the class has no slab */
}

void *hak_alloc_aligned_zeroed(size_t align, size_t size)
{
    if (HAK_UNLIKELY(hak_suspended))
        return hak_default_alloc(size, align, true);
    unsigned cls = hak_class_of_aligned(hak_max(align, 16), size);
    void *p = cls < HAK_NCLASSES ? hak_alloc_class(cls) : NULL;
    return p ? memset(p, 0, size) : alloc_span(hak_max(size, 1), align, true);
}

size_t hak_good_size(size_t size)
{
    if (HAK_HARDENED && !size)
        return 0;
    if (size <= HAK_SMALL_MAX)
        return hak_class_usable(hak_class_of(size));
    return hak_align_up(size, HAK_CANARY ? HAK_PAGE : HAK_SYSTEM_PAGE);
}

/* --- free --------------------------------------------------------------------------------------------- */

#define EARLY_FREES 64u

/* The heap for a free; NULL before the library could start, and after the thread's end. glibc's last frees of a thread
 * come after the destructor that would end its heap: so a thread that never allocated, and has freed little, gets none;
 * but a quarantine needs one. A light thread gets its heap at a malloc: then a block that it frees twice in a row meets
 * itself in the CPU's array. A thread that only frees stays light. */
static struct hak_heap *enter_to_free(void)
{
    if (HAK_CPU_HEAPS && hak_self.light)
        return hak_cpu_heap_enter();
    if (hak_self.heap || HAK_CPU_HEAPS || hak_self.early_frees >= EARLY_FREES || hak_quarantine_is_on())
        return hak_init() ? hak_heap_enter() : NULL;
    hak_self.early_frees++;
    return NULL;
}

/* free does not change errno: the OS layer, the log and the start of a thread preserve it. */

static void free_small(struct hak_slab *slab, void *p)
{
    hak_block_check(slab, p, "free");
    hak_mark_set(p, slab->cls);
    struct hak_heap *heap = enter_to_free();
    if (heap && HAK_LOAD_RELAXED(&slab->owner) == heap)
        hak_slab_tag(slab, heap->tag); /* the thread owns the slab: the tag was lost when the table grew */
    if (hak_quarantine_keep(heap, slab->cls, p)) {
        hak_heap_leave(heap);
        return;
    }
    if (heap && hak_heap_is_of_cpu(heap)) {
        hak_cache_check(heap, slab->cls, p);
    } else if (heap) {
        hak_remote_cache_put(heap, slab->cls, p);
    } else {
        hak_next_store(p, NULL);
        hak_drain(NULL, p);
    }
    hak_heap_leave(heap);
}

/* slab: of a span that begins at p; or p lies outside of all slabs and spans, as direct mappings do. */
HAK_INLINE void free_span(struct hak_slab *slab, void *p)
{
    if (HAK_UNLIKELY(!hak_parts.spans->span_free(slab, p)))
        hak_block_fail_foreign(p, "free");
    hak_work_add(HAK_SPAN_WORK);
}

static HAK_NOINLINE void free_other(void *p, const void *caller)
{
    struct hak_slab *slab = hak_space_slab(p);
    if (slab && hak_block_in_slab(slab))
        free_small(slab, p);
    else if (hak_arena_of(slab))
        hak_arena_free(slab, p);
    else if (HAK_UNLIKELY(hak_guard_is_on) && hak_guard_usable(p, "free"))
        hak_guard_free(p, caller);
    else if (!hak_zero_free(p)) {
        if (!hak_init())
            hak_block_fail_foreign(p, "free");
        free_span(slab, p);
    }
    hak_maintain();
}

static HAK_NOINLINE void free_by_slab(void *p, const void *caller)
{
    struct hak_slab *span = hak_space_span(p);
    if (HAK_UNLIKELY(!span)) {
        free_other(p, caller);
        return;
    }
    free_span(span, p);
    hak_maintain();
}

static HAK_NOINLINE void after_remote_check(void)
{
    hak_thread_heap(); /* a trim may have requested a flush of this thread's bins and slabs */
    hak_maintain();
}

#define SPAN_FREES 128u /* a maintenance step comes after so many */

static HAK_NOINLINE void maintain_after_spans(void)
{
    hak_thread_heap(); /* a trim may have requested a flush of this thread's bins */
    hak_maintain_now();
}

/* The usual case of a large block: its span waits where none of its length does. False: nothing was done. */
HAK_INLINE bool free_to_wait(void *p)
{
    struct hak_heap *heap = hak_self.heap;
    struct hak_slab *span = hak_space_span_usual(p);
    if (HAK_HARDENED || HAK_UNLIKELY(!span || !heap) || !hak_run_cache_put_last(span))
        return false;
    _Atomic(uint64_t) *frees = &heap->counters.transitions[HAK_SLAB_SPAN][HAK_SLAB_UNUSED];
    uint64_t n = HAK_LOAD_RELAXED(frees) + 1;
    HAK_STORE_RELAXED(frees, n);
    if (HAK_UNLIKELY(n % SPAN_FREES == 0))
        maintain_after_spans();
    return true;
}

/* The tag names no class: mostly, the page is an arena's. That of NULL may be any. */
static HAK_NOINLINE void free_in_front(void *p, uint64_t mixed, const void *caller)
{
    if (HAK_UNLIKELY(!hak_front_put(p, mixed)) && p && !free_to_wait(p))
        free_by_slab(p, caller);
}

/* A small block of another owner, or one whose tag was lost. A light thread decides itself. */
static HAK_NOINLINE void free_remote(void *p, unsigned cls)
{
    struct hak_heap *heap = hak_self.heap;
    if (HAK_CPU_HEAPS && HAK_UNLIKELY(!heap)) {
        hak_free_check(p, cls);
        return;
    }
    hak_mark_set(p, cls);
    if (hak_quarantine_keep(heap, cls, p))
        hak_maintain();
    else if (HAK_UNLIKELY(!hak_remote_cache_put(heap, cls, p)))
        after_remote_check();
}

/* The tag of a page in use names the class, whoever owns the page. Where the tag does not suffice, the slab decides. */
void hak_free_slow(void *p)
{
    HAK_PROBE(free_slow, p);
    uint64_t page = (uintptr_t)p >> HAK_PAGE_LG, tag = hak_tag_load(page);
    uint64_t cls = HAK_LIKELY(tag) ? (uint32_t)(page ^ tag) : HAK_NCLASSES;
    if (HAK_UNLIKELY(!tag) && (!p || free_to_wait(p)))
        return;
    if (HAK_UNLIKELY(tag && cls >= HAK_NCLASSES))
        free_in_front(p, page ^ tag, __builtin_return_address(0));
    else if (HAK_UNLIKELY(cls >= HAK_NCLASSES || (!HAK_CPU_HEAPS && !hak_self.heap) ||
                          (!HAK_BLOCKS_ARE_MARKED && !hak_class_starts_at(cls, p)) || /* hak_mark_check decides */
                          (HAK_HEADER_LIMIT && hak_tag_in_header_zone(p))))
        free_by_slab(p, __builtin_return_address(0));
    else
        free_remote(p, (unsigned)cls);
}

/* A class whose bin was drained has no room, so that the next free comes here: it may be the second of its block. */
static HAK_NOINLINE void check_bin(void *p, unsigned cls)
{
    struct hak_heap *heap = enter_to_free();
    const struct hak_slab *slab = heap && !HAK_BLOCKS_ARE_MARKED ? hak_space_slab_of_block(p) : NULL;
    if (slab && HAK_LOAD_RELAXED(&slab->owner) == heap)
        hak_slab_check_used(slab, p);
    if (HAK_LIKELY(heap))
        hak_cache_check(heap, cls, p);
    else
        hak_cache_leave(cls, p);
    hak_heap_leave(heap);
    hak_maintain();
}

/* Its first attempt to free: a block with a mark is free already. */
HAK_INLINE bool push_light(unsigned cls, void *p)
{
    if (!HAK_CPU_HEAPS || !hak_self.light)
        return false;
    if (HAK_UNLIKELY(*(uint64_t *)p == hak_cpu_mark(p)))
        hak_cache_fail_twice(p);
    *(uint64_t *)p = hak_cpu_mark(p);
    if (HAK_LIKELY(hak_rseq_push(cls, p)))
        return true;
    *(uint64_t *)p = 0;
    return false;
}

void hak_free_check(void *p, unsigned cls)
{
    struct hak_heap *heap = hak_self.heap;
    if (push_light(cls, p))
        return;
    if (HAK_UNLIKELY(hak_cache_first(cls) == p))
        hak_slab_fail_free(hak_space_slab_of_block(p), p);
    if (HAK_LIKELY(heap && hak_cache_tick(heap, cls, p)))
        hak_maintain();
    else
        check_bin(p, cls);
}

#if HAK_COUNTING
/* Where each thread has a heap, its first calls are not counted. */
void hak_count_malloc(void)
{
    if (hak_self.heap)
        hak_count(&hak_self.heap->counters.mallocs, 1);
    else if (HAK_CPU_HEAPS)
        HAK_ADD_RELAXED(&hak_counters_nobodys.mallocs, 1);
}

void hak_count_free(void)
{
    if (hak_self.heap)
        hak_count(&hak_self.heap->counters.frees, 1);
    else if (HAK_CPU_HEAPS)
        HAK_ADD_RELAXED(&hak_counters_nobodys.frees, 1);
}
#endif
