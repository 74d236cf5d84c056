/* SPDX-License-Identifier: MIT
 * See heaps.h. */
#include "heaps.h"

#include "caches/contract.h"
#include "caches/slots/slots.h"
#include "core/base/clock.h"
#include "core/base/layout.h"
#include "core/base/list.h"
#include "core/base/text.h"
#include "core/os/meta.h"
#include "core/os/os.h"
#include "core/parts/parts.h"
#include "decay.h"

#define WARM 16u /* recycled heaps that keep their slots */
_Static_assert(sizeof(struct hak_cache) <= HAK_SYSTEM_PAGE, "for hak_os_can_read");

HAK_LOCK(hak_heaps_lock, HAK_RANK_HEAPS);
HAK_LOCK(hak_orphan_lock, HAK_RANK_ORPHAN);

/* hak_heaps_lock protects these. */
static struct hak_heap *used, *recycled;
static uint32_t used_count;
static uint32_t tags = 1; /* 0 means none, 1 is HAK_TAG_SHARED's */
static HAK_SELDOM struct hak_counters ended_counters;
static uint64_t started, pinned_slabs;
static _Atomic(uint32_t) recycled_count; /* written under the lock */

static HAK_SELDOM struct hak_heap orphan;

static void link_used(struct hak_heap *heap)
{
    HAK_LIST_PUSH(&used, heap);
    used_count++;
}

static void unlink_used(struct hak_heap *heap)
{
    HAK_LIST_REMOVE(&used, heap);
    used_count--;
}

/* --- fork ------------------------------------------------------------------------------------------------ */

/* In a forked child: the heaps of threads that are not in it, in the order of the copies of their caches. Under
 * hak_heaps_lock. */
static struct {
    struct hak_heap *first;
    struct hak_cache *caches, *next; /* the copies; the copy of the first heap */
    size_t bytes, count;             /* bytes of all copies; number of heaps */
    uint64_t since_ms;
} left;
static _Atomic(bool) any_left;

/* Whether the thread's storage is in the child, too: a program can exclude it (MADV_DONTFORK), or end a thread so that
 * no destructor runs, and use the addresses for something else. */
static bool has_cache(const struct hak_heap *heap)
{
    return hak_os_can_read(heap->cache, sizeof *heap->cache) && heap->cache->heap == heap;
}

/* Whether the heap's thread, which is not in the child, was outside of all slow paths.
 *
 * The child has each thread as it was between two instructions. The kernel holds the lock of the address space while it
 * write-protects and shares page after page, and flushes the processors' translations before it releases the lock. So
 * what a thread stores meanwhile goes to a page that the child shares, whichever page it is, until one store meets a
 * protected page: that one, and all behind it, wait for the lock, and the child has none of them. So if `changing` is
 * false in the child, then so it was when the thread stopped, and all that it did to the heap before is there,
 * complete. Its bins change outside of slow paths, too; there each malloc removes a block by one store, and each free
 * adds one, after it has stored the pointer.
 *
 * The kernel copies pages at once that are pinned for a device. Metadata never are. A program's blocks can be, so this
 * holds only where blocks in bins carry nothing; and the end of a thread's stack beside its storage could be, but no
 * program is known that gives it to a device and allocates meanwhile. */
static bool is_complete(const struct hak_heap *heap)
{
    return heap->cache && !HAK_LOAD_RELAXED(&heap->changing) && has_cache(heap);
}

/* Of the thread that forks, which allocates in an arena perhaps. */
static struct hak_heap *own_heap(void)
{
    return hak_suspended ? hak_suspended->heap : hak_self.heap;
}

/* The copies, so that the storage of those threads can serve others. Those of the parent's parent move. */
static void make_copies(void)
{
    size_t bytes = (left.count + used_count) * sizeof *left.caches;
    bool needed = HAK_BLOCKS_ARE_BARE && (left.count || used_count > (own_heap() != NULL));
    struct hak_cache *caches = needed ? hak_meta_alloc_pages(bytes) : NULL;
    if (left.caches && caches)
        hak_move(caches, left.next, left.count * sizeof *caches);
    if (left.caches)
        hak_meta_free_pages(left.caches, left.bytes);
    left.caches = left.next = caches;
    left.bytes = bytes;
    left.since_ms = hak_clock_ms();
    HAK_STORE_RELAXED(&any_left, caches != NULL);
}

static void pin(struct hak_heap *heap)
{
    pinned_slabs += HAK_LOAD_RELAXED(&heap->slabs);
    hak_publish_allocated(&heap->counters);
    hak_counters_add(&ended_counters, &heap->counters);
    if (!heap->cache) /* if a signal handler forks, the call that it interrupted may remove it from a list */
        heap->next = heap->prev = heap;
}

/* The heaps are not touched before they are needed: most children execute another program. Those of CPUs are
 * complete. */
HAK_SNAPSHOT void hak_heaps_fork_child(void)
{
    struct hak_heap *own = own_heap(), *next, *others = used, **last = &left.first;
    make_copies();
    while (left.caches && *last)
        last = &(*last)->next;
    if (!left.caches)
        for (struct hak_heap *heap = left.first; heap; heap = next, left.count--) {
            next = heap->next;
            pin(heap);
        }
    used = NULL;
    used_count = 0;
    for (struct hak_heap *heap = others; heap; heap = next) {
        next = heap->next;
        if (heap == own || hak_heap_is_of_cpu(heap)) {
            link_used(heap);
        } else if (!left.caches || !is_complete(heap)) {
            pin(heap);
        } else {
            hak_move(&left.next[left.count++], heap->cache, sizeof *heap->cache);
            *last = heap;
            last = &heap->next;
        }
    }
    *last = NULL;
}

/* Dissolves one that fork left at that time or before. False: there is none. */
static HAK_COLD bool dissolve_left(uint64_t since_ms)
{
    struct hak_cache cache;
    hak_lock_acquire(&hak_heaps_lock);
    struct hak_heap *heap = left.since_ms <= since_ms ? left.first : NULL;
    if (heap) {
        left.first = heap->next;
        hak_move(&cache, left.next++, sizeof cache);
        if (!--left.count) {
            hak_meta_free_pages(left.caches, left.bytes);
            left.caches = NULL;
            HAK_STORE_RELAXED(&any_left, false);
        }
        link_used(heap); /* its counters are summed from here on */
    }
    hak_lock_release(&hak_heaps_lock);
    if (heap) {
        heap->cache = &cache;
        hak_heap_end_parts(heap);
        hak_heap_dissolve(heap);
    }
    return heap;
}

bool hak_heaps_dissolve(uint64_t since_ms, unsigned most)
{
    while (most && HAK_UNLIKELY(HAK_LOAD_RELAXED(&any_left)) && dissolve_left(since_ms))
        most--;
    return !most;
}

/* The tag of a recycled heap may be reused: tags are hints, and the last owner has no slab left. */
struct hak_heap *hak_heap_new(struct hak_arrays *arrays)
{
    hak_lock_acquire(&hak_heaps_lock);
    struct hak_heap *heap;
    if ((heap = recycled)) {
        recycled = heap->next;
        HAK_SUB_RELAXED(&recycled_count, 1);
    } else {
        heap = hak_meta_alloc(sizeof *heap);
        if (heap)
            heap->tag = (uint64_t)++tags << 32;
    }
    if (heap) {
        if ((heap->arrays = arrays))
            heap->tag = HAK_TAG_SHARED;
        link_used(heap);
        started++;
    }
    hak_lock_release(&hak_heaps_lock);
    return heap;
}

void hak_heap_start_parts(struct hak_heap *heap)
{
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->heap_start)
            hak_frontends[i]->heap_start(heap);
}

void hak_heap_end_parts(struct hak_heap *heap)
{
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->heap_end)
            hak_frontends[i]->heap_end(heap);
}

void hak_heap_recycle(struct hak_heap *heap)
{
    hak_lock_acquire(&hak_heaps_lock);
    unlink_used(heap);
    hak_publish_allocated(&heap->counters);
    hak_counters_add(&ended_counters, &heap->counters);
    uint64_t tag = heap->tag;
    hak_fill(heap, 0, offsetof(struct hak_heap, bins)); /* dissolving cleared the bins one by one */
    heap->tag = tag;
    heap->next = recycled;
    recycled = heap;
    HAK_ADD_RELAXED(&recycled_count, 1);
    hak_lock_release(&hak_heaps_lock);
}

void hak_heap_dissolve(struct hak_heap *heap)
{
    hak_bins_dissolve(heap);
    if (HAK_BLOCKS_IN_SLOTS && HAK_LOAD_RELAXED(&recycled_count) >= WARM)
        hak_slots_release(heap);
    hak_heap_recycle(heap);
}

struct hak_heap *hak_orphan_acquire(void)
{
    hak_lock_acquire(&hak_orphan_lock);
    orphan.tag = HAK_TAG_SHARED;
    return &orphan;
}

void hak_orphan_release(void)
{
    hak_lock_release(&hak_orphan_lock);
}

static void add_heap(struct hak_heaps_totals *totals, const struct hak_heap *heap)
{
    totals->active_slabs += HAK_LOAD_RELAXED(&heap->slabs);
    hak_counters_add(&totals->counters, &heap->counters);
}

/* For tools that read memory. The chosen cache shows what its bins hold. */
static void show_heaps(void)
{
    HAK_SHOW_VARIABLE(used);
    HAK_SHOW_VARIABLE(orphan);
    HAK_SHOW_VARIABLE(ended_counters);
    HAK_SHOW_VARIABLE(started);
    HAK_SHOW_VARIABLE(pinned_slabs);
    HAK_SHOW_SIZE(hak_heap);
    HAK_SHOW_FIELD(hak_heap, cache);
    HAK_SHOW_FIELD(hak_heap, next);
    HAK_SHOW_FIELD(hak_heap, counters);
    HAK_SHOW_FIELD(hak_heap, bins);
    HAK_SHOW_SIZE(hak_bin);
    HAK_SHOW_FIELD(hak_bin, remote_count);
    HAK_SHOW_FIELD(hak_counters, stages);
#define X(name, meaning) HAK_SHOW_FIELD(hak_counters, name);
    HAK_COUNTERS(X)
#undef X
}

void hak_heaps_totals(struct hak_heaps_totals *totals)
{
    show_heaps();
    hak_lock_acquire(&hak_heaps_lock);
    hak_fill(totals, 0, sizeof *totals);
    totals->started = started;
    totals->pinned_slabs = pinned_slabs;
    hak_counters_add(&totals->counters, &ended_counters);
    hak_counters_add(&totals->counters, &orphan.counters);
    hak_counters_add(&totals->counters, &hak_counters_nobodys);
    for (struct hak_heap *heap = used; heap; heap = heap->next) {
        add_heap(totals, heap);
        totals->cpus += hak_heap_is_of_cpu(heap);
        totals->used += !hak_heap_is_of_cpu(heap);
    }
    for (struct hak_heap *heap = left.first; heap; heap = heap->next)
        add_heap(totals, heap);
    hak_lock_release(&hak_heaps_lock);
}

uint32_t hak_heaps_count(void)
{
    hak_lock_acquire(&hak_heaps_lock);
    uint32_t n = used_count;
    hak_lock_release(&hak_heaps_lock);
    return n;
}
