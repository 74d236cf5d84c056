/* SPDX-License-Identifier: MIT
 * See bins.h. */
#include "decay.h"

#include "cache_bins.h"
#include "core/base/clock.h"
#include "core/base/lock.h"
#include "core/heap/quarantine.h"
#include "core/parts/parts.h"
#include "core/parts/sparse.h"
#include "owned.h"
#include "remote_cache.h"

#define SPARSE_BYTES (512 * HAK_KIB) /* about so much is purged by one scan of a class, in some 100 us */

/* Collects remote frees first: they may leave the slab idle. */
static void release_idle_slabs(struct hak_heap *heap, unsigned cls)
{
    struct hak_slab *next;
    for (struct hak_slab *slab = heap->bins[cls].slabs; slab; slab = next) {
        next = slab->next;
        hak_count(&heap->counters.remote_saved, hak_slab_collect(slab));
        if (slab->used == 0)
            hak_owned_release(heap, slab);
    }
}

void hak_bins_flush(struct hak_heap *heap)
{
    hak_quarantine_flush(heap);
    hak_heap_each_class(heap, hak_cache_drain);
    hak_remote_cache_flush(heap); /* before release_idle_slabs: some of its blocks may belong to slabs of this heap */
    hak_heap_each_class(heap, release_idle_slabs);
}

/* The heap's slabs lose their owner. */
static void give_up_slabs(struct hak_heap *heap, unsigned cls)
{
    struct hak_slab *slab;
    while ((slab = heap->bins[cls].slabs)) {
        hak_owned_remove(heap, slab);
        if (!slab->used)
            hak_slab_untag(slab);
        if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
            hak_parts.backend->release_slab(slab);
    }
}

void hak_bins_give_up_slabs(struct hak_heap *heap)
{
    hak_heap_each_class(heap, give_up_slabs);
}

static bool is_bin_empty(const struct hak_heap *heap, unsigned cls)
{
    return hak_heap_is_of_cpu(heap) ? !hak_cache_length(heap, cls) : !hak_cache_first(cls);
}

static bool purge_sparse(struct hak_heap *heap, unsigned cls, bool now)
{
    size_t bytes = 0;
    for (struct hak_slab *slab = heap->bins[cls].slabs;
         slab && (now || (bytes < SPARSE_BYTES && !hak_lock_is_fork_waiting())); slab = slab->next)
        bytes += hak_sparse_is_due(slab, now) ? hak_sparse_purge(slab) : 0;
    return bytes;
}

static void trim_class(struct hak_heap *heap, unsigned cls)
{
    purge_sparse(heap, cls, true);
}

void hak_bins_trim(void)
{
    if (!hak_self.heap)
        return;
    hak_heap_begin_change(hak_self.heap);
    hak_heap_each_class(hak_self.heap, trim_class);
    hak_heap_end_change(hak_self.heap);
}

/* A bin without a refill since the last scan holds more than the thread needs. True: it shrank, or pages inside its
 * slabs were purged. */
static bool scan_class(struct hak_heap *heap, unsigned cls)
{
    struct hak_bin *b = &heap->bins[cls];
    bool served = b->seen != (uint8_t)b->refills;
    bool purged = purge_sparse(heap, cls, false);
    b->seen = (uint8_t)b->refills;
    if (served || (is_bin_empty(heap, cls) && !b->remote_count && !b->slabs))
        return purged;
    hak_count(&heap->counters.idle_classes, 1);
    hak_cache_halve(heap, cls);
    hak_remote_cache_flush_class(heap, cls);
    release_idle_slabs(heap, cls);
    if (is_bin_empty(heap, cls))
        give_up_slabs(heap, cls);
    return true;
}

/* The scan visits each class once per purge delay. */
void hak_bins_scan_heap(struct hak_heap *heap, uint64_t now_ms)
{
    uint64_t delay = hak_max(hak_purge_delay_ms(), HAK_NCLASSES), step = delay / HAK_NCLASSES;
    if (!heap->scanned_ms)
        heap->scanned_ms = now_ms;
    if (hak_clock_age(heap->scanned_ms, now_ms) > delay)
        heap->scanned_ms = now_ms - delay;
    while (hak_clock_age(heap->scanned_ms, now_ms) >= step) {
        heap->scanned_ms += step;
        heap->scan_next = (heap->scan_next + 1) % HAK_NCLASSES;
        hak_heap_begin_change(heap);
        bool changed = scan_class(heap, heap->scan_next);
        hak_heap_end_change(heap);
        if (changed)
            return;
    }
}

void hak_bins_scan(uint64_t now_ms)
{
    if (hak_self.heap)
        hak_bins_scan_heap(hak_self.heap, now_ms);
}

HAK_SNAPSHOT size_t hak_bins_free_bytes(const struct hak_heap *heap)
{
    size_t bytes = hak_quarantine_bytes(heap);
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        bytes += (hak_cache_length(heap, cls) + heap->bins[cls].remote_count) * hak_class_usable(cls);
    return bytes;
}

static void abandon(struct hak_heap *heap, unsigned cls)
{
    give_up_slabs(heap, cls);
    heap->bins[cls] = (struct hak_bin){0};
}

void hak_bins_dissolve(struct hak_heap *heap)
{
    hak_quarantine_flush(heap);
    hak_heap_each_class(heap, hak_cache_end);
    hak_remote_cache_flush(heap);
    hak_heap_each_class(heap, abandon);
}
