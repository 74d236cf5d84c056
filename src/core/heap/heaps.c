/* SPDX-License-Identifier: MIT
 * See heaps.h. */
#include "heaps.h"

#include <limits.h>
#include <string.h>

#include "bins.h"
#include "caches/contract.h"
#include "caches/slots/slots.h"
#include "core/base/clock.h"
#include "core/base/layout.h"
#include "core/base/list.h"
#include "core/os/meta.h"
#include "core/os/os.h"
#include "core/parts/parts.h"
#include "share.h"

#define RETIRED_BYTES (32 * HAK_MIB) /* most bytes carved from the slabs of all retired heaps */
#define WARM 16u                     /* recycled heaps that keep their slots */
_Static_assert(sizeof(struct hak_cache) <= HAK_SYSTEM_PAGE, "for hak_os_can_read");

HAK_LOCK(hak_heaps_lock, HAK_RANK_HEAPS);
HAK_LOCK(hak_orphan_lock, HAK_RANK_ORPHAN);

/* Under hak_heaps_lock. */
static struct hak_heap *used, *recycled;
static struct hak_heap *retired, *oldest; /* the ends of a queue: the heap that was retired last, and first */
static uint32_t used_count;
static uint32_t tags = 1; /* 0 means none, 1 is HAK_TAG_SHARED's */
static HAK_SELDOM struct hak_counters ended_counters;
static uint64_t started, resumed, pinned_slabs;
static _Atomic(uint32_t) retired_count, recycled_count; /* written under the lock, */
static _Atomic(size_t) retired_bytes;                   /* as is this */

static HAK_SELDOM struct hak_heap orphan;

static void link_used(struct hak_heap *heap)
{
    HAK_LIST_PUSH(&used, heap);
    hak_share_set_heaps(++used_count);
}

static void unlink_used(struct hak_heap *heap)
{
    HAK_LIST_REMOVE(&used, heap);
    hak_share_set_heaps(--used_count);
}

static void unlink_retired(struct hak_heap *heap)
{
    HAK_QUEUE_REMOVE(&retired, &oldest, heap);
    HAK_SUB_RELAXED(&retired_count, 1);
    HAK_SUB_RELAXED(&retired_bytes, heap->retired_bytes);
}

static void push_retired(struct hak_heap *heap)
{
    HAK_QUEUE_ADD_FIRST(&retired, &oldest, heap);
    HAK_ADD_RELAXED(&retired_count, 1);
    HAK_ADD_RELAXED(&retired_bytes, heap->retired_bytes);
}

/* --- fork ------------------------------------------------------------------------------------------------ */

/* In a forked child: the heaps of threads that are not in it, in the order of the copies of their caches. Under
 * hak_heaps_lock. */
static struct {
    struct hak_heap *first;
    struct hak_cache *caches, *next; /* the copies; that of the first heap */
    size_t bytes;                    /* of all copies */
    uint64_t since_ms;
} left;
static _Atomic(bool) any_left;

/* Retires up to `most` of them. */
static void retire_left(unsigned most)
{
    if (!HAK_BLOCKS_ARE_BARE)
        return;
    for (struct hak_heap *heap; most-- && (heap = left.first); left.next++) {
        left.first = heap->next;
        heap->cache = left.next;
        hak_cache_retire(heap);
        heap->cache = NULL;
        heap->retired_ms = left.since_ms;
        heap->retired_bytes = 0; /* not bounded */
        push_retired(heap);
    }
    if (!left.first && left.caches) {
        hak_meta_free_pages(left.caches, left.bytes);
        left.caches = NULL;
        HAK_STORE_RELAXED(&any_left, false);
    }
}

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

/* The copies, so that the storage of those threads can serve others. */
static void make_copies(void)
{
    retire_left(UINT_MAX); /* of the parent's parent */
    left.bytes = used_count * sizeof *left.caches;
    left.caches = HAK_BLOCKS_ARE_BARE && used_count > (hak_self.heap != NULL) ? hak_meta_alloc_pages(left.bytes) : NULL;
    left.next = left.caches;
    left.since_ms = hak_clock_ms();
    HAK_STORE_RELAXED(&any_left, left.caches != NULL);
}

static void pin(struct hak_heap *heap)
{
    pinned_slabs += HAK_LOAD_RELAXED(&heap->slabs);
    hak_counters_add(&ended_counters, &heap->counters);
    if (!heap->cache) /* if a signal handler forks, the call that it interrupted may remove it from a list */
        heap->next = heap->prev = heap;
}

/* The heaps are not touched before they are needed: most children execute another program. */
HAK_SNAPSHOT void hak_heaps_fork_child(void)
{
    struct hak_heap *own = hak_self.heap, *next, **last = &left.first;
    if (hak_heaps_are_of_cpus())
        return; /* the child has all heaps, complete */
    make_copies();
    struct hak_cache *copy = left.caches;
    for (struct hak_heap *heap = used; heap; heap = next) {
        next = heap->next;
        if (heap == own)
            continue;
        if (!copy || !is_complete(heap)) {
            pin(heap);
            continue;
        }
        *copy++ = *heap->cache;
        if (*last != heap)
            *last = heap;
        last = &heap->next;
    }
    if (*last)
        *last = NULL;
    used = NULL;
    used_count = 0;
    if (own)
        link_used(own);
}

/* The tag of a recycled heap may be reused: tags are hints, and the last owner has no slab left. */
struct hak_heap *hak_heap_new(void)
{
    hak_lock_acquire(&hak_heaps_lock);
    struct hak_heap *heap;
    if (!retired)
        retire_left(1);
    if ((heap = retired)) {
        unlink_retired(heap);
        resumed++;
    } else if ((heap = recycled)) {
        recycled = heap->next;
        HAK_SUB_RELAXED(&recycled_count, 1);
    } else {
        heap = hak_meta_alloc(sizeof *heap);
        if (heap)
            heap->tag = HAK_CACHE_CPU ? HAK_TAG_CPUS : (uint64_t)++tags << 32;
    }
    if (heap) {
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
    hak_counters_add(&ended_counters, &heap->counters);
    uint64_t tag = heap->tag;
    memset(heap, 0, offsetof(struct hak_heap, bins)); /* the bins were cleared one by one */
    heap->tag = tag;
    heap->next = recycled;
    recycled = heap;
    HAK_ADD_RELAXED(&recycled_count, 1);
    hak_lock_release(&hak_heaps_lock);
}

static void dissolve(struct hak_heap *heap)
{
    hak_heap_end_parts(heap); /* a heap that fork left has not ended */
    hak_bins_dissolve(heap);
    if (HAK_BLOCKS_IN_SLOTS && HAK_LOAD_RELAXED(&recycled_count) >= WARM)
        hak_slots_release(heap);
    hak_heap_recycle(heap);
}

/* Only the next owner can use what a retired heap holds, so it must not be much. */
static bool may_retire(size_t bytes)
{
    return HAK_LOAD_RELAXED(&retired_bytes) + bytes <= RETIRED_BYTES &&
           HAK_LOAD_RELAXED(&retired_count) < hak_options.parked_threads;
}

static bool retire(struct hak_heap *heap)
{
    if (hak_parts.release->at_once)
        return false;
    hak_lock_acquire(&hak_heaps_lock);
    bool may = may_retire(heap->retired_bytes);
    if (may) {
        unlink_used(heap);
        push_retired(heap);
    }
    hak_lock_release(&hak_heaps_lock);
    return may;
}

void hak_heap_retire_or_dissolve(struct hak_heap *heap)
{
    if (!retire(heap))
        dissolve(heap);
}

/* Takes a heap that was retired at that time or before; it counts as used again, so that its counters are summed. */
static struct hak_heap *take_retired(uint64_t since_ms)
{
    hak_lock_acquire(&hak_heaps_lock);
    struct hak_heap *heap = oldest && oldest->retired_ms <= since_ms ? oldest : NULL;
    if (heap) {
        unlink_retired(heap);
        link_used(heap);
    }
    hak_lock_release(&hak_heaps_lock);
    return heap;
}

/* Retires the heaps that fork left at that time or before, at most `most`. */
static HAK_COLD void retire_left_since(uint64_t since_ms, unsigned most)
{
    hak_lock_acquire(&hak_heaps_lock);
    if (left.since_ms <= since_ms)
        retire_left(most);
    hak_lock_release(&hak_heaps_lock);
}

bool hak_heaps_dissolve(uint64_t since_ms, unsigned most)
{
    struct hak_heap *heap;
    if (HAK_UNLIKELY(HAK_LOAD_RELAXED(&any_left)))
        retire_left_since(since_ms, most);
    for (; most && HAK_LOAD_RELAXED(&retired_count) && (heap = take_retired(since_ms)); most--)
        dissolve(heap);
    return !most;
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
    HAK_SHOW_VARIABLE(retired);
    HAK_SHOW_VARIABLE(orphan);
    HAK_SHOW_VARIABLE(ended_counters);
    HAK_SHOW_VARIABLE(started);
    HAK_SHOW_VARIABLE(pinned_slabs);
    HAK_SHOW_SIZE(hak_heap);
    HAK_SHOW_FIELD(hak_heap, cache);
    HAK_SHOW_FIELD(hak_heap, next);
    HAK_SHOW_FIELD(hak_heap, retired_ms);
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
    retire_left(UINT_MAX);
    memset(totals, 0, sizeof *totals);
    totals->started = started;
    totals->retired = HAK_LOAD_RELAXED(&retired_count);
    totals->resumed = resumed;
    totals->pinned_slabs = pinned_slabs;
    hak_counters_add(&totals->counters, &ended_counters);
    hak_counters_add(&totals->counters, &orphan.counters);
    hak_counters_add(&totals->counters, &hak_counters_nobodys);
    for (struct hak_heap *heap = used; heap; heap = heap->next, totals->used++)
        add_heap(totals, heap);
    for (struct hak_heap *heap = retired; heap; heap = heap->next)
        add_heap(totals, heap);
    hak_lock_release(&hak_heaps_lock);
}

size_t hak_heaps_free_bytes(void)
{
    size_t bytes = hak_bins_free_bytes();
    hak_lock_acquire(&hak_heaps_lock);
    retire_left(UINT_MAX);
    for (const struct hak_heap *heap = retired; heap; heap = heap->next)
        bytes += hak_bins_retired_bytes(heap);
    for (const struct hak_heap *heap = hak_heaps_are_of_cpus() ? used : NULL; heap; heap = heap->next)
        bytes += hak_bins_retired_bytes(heap);
    hak_lock_release(&hak_heaps_lock);
    return bytes;
}
