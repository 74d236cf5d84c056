/* SPDX-License-Identifier: MIT
 * See heap.h. All bins of a thread at once. */
#include "heap.h"

#include "caches/chosen.h"
#include "core/base/clock.h"
#include "core/parts/parts.h"
#include "owned.h"
#include "quarantine.h"
#include "remote_cache.h"

/* What came back from others counts, too. */
static void release_idle_slabs(struct hak_thread *t, unsigned cls)
{
    struct hak_slab *next;
    for (struct hak_slab *slab = t->bins[cls].slabs; slab; slab = next) {
        next = slab->next;
        hak_count(&t->counters.remote_saved, hak_slab_collect(slab));
        if (slab->used == 0)
            hak_owned_release(t, slab);
    }
}

void hak_heap_drain(struct hak_thread *t)
{
    hak_quarantine_flush(t);
    hak_heap_each_class(t, hak_cache_drain);
    hak_remote_cache_flush(t); /* before the slabs are looked at: some may be this thread's own by now */
    hak_heap_each_class(t, release_idle_slabs);
}

/* Owned slabs become anybody's. */
static void give_up_slabs(struct hak_thread *t, unsigned cls)
{
    struct hak_slab *slab;
    while ((slab = t->bins[cls].slabs)) {
        hak_owned_remove(t, slab);
        if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
            hak_parts.backend->release_slab(slab);
    }
}

static bool holds_any(const struct hak_bin *b, unsigned cls)
{
    return hak_cache_first(cls) || b->remote_count || b->slabs;
}

/* Without a refill since the last look the bin holds more than the thread needs. True: some of it went. */
static bool scan_class(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    bool served = b->seen != (uint8_t)b->refills;
    b->seen = (uint8_t)b->refills;
    if (served || !holds_any(b, cls))
        return false;
    hak_count(&t->counters.idle_classes, 1);
    hak_cache_halve(t, cls);
    hak_remote_cache_flush_class(t, cls);
    release_idle_slabs(t, cls);
    if (!hak_cache_first(cls))
        give_up_slabs(t, cls);
    return true;
}

/* Each class is looked at once in a purge delay. */
void hak_heap_look(uint64_t now_ms)
{
    struct hak_thread *t = hak_self.thread;
    uint64_t delay = hak_max(hak_purge_delay_ms(), HAK_NCLASSES), step = delay / HAK_NCLASSES;
    if (!t)
        return;
    if (!t->looked_ms)
        t->looked_ms = now_ms;
    if (hak_clock_age(t->looked_ms, now_ms) > delay)
        t->looked_ms = now_ms - delay;
    while (hak_clock_age(t->looked_ms, now_ms) >= step) {
        t->looked_ms += step;
        t->look_next = (t->look_next + 1) % HAK_NCLASSES;
        if (scan_class(t, t->look_next))
            return;
    }
}

size_t hak_heap_free_bytes(void)
{
    const struct hak_thread *t = hak_self.thread;
    size_t bytes = t ? hak_quarantine_bytes(t) : 0;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        bytes += (hak_cache_length(cls) + (t ? t->bins[cls].remote_count : 0)) * hak_class_usable(cls);
    return bytes;
}

size_t hak_heap_parked_bytes(const struct hak_thread *t)
{
    size_t bytes = 0;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        bytes += hak_cache_parked_length(t, cls) * hak_class_usable(cls);
    return bytes;
}

static size_t carved_bytes(const struct hak_bin *b)
{
    size_t bytes = 0;
    for (const struct hak_slab *slab = b->slabs; slab; slab = slab->next)
        bytes += (size_t)slab->carved * slab->stride;
    return bytes;
}

HAK_INLINE void add_parked_bytes(struct hak_thread *t, unsigned cls)
{
    if (t->bins[cls].slabs)
        t->parked_bytes += carved_bytes(&t->bins[cls]);
}

void hak_heap_park(struct hak_thread *t)
{
    t->parked_bytes = 0;
    hak_quarantine_flush(t);
    hak_remote_cache_flush(t);
    hak_heap_each_class(t, add_parked_bytes);
    hak_cache_park(t);
}

void hak_heap_resume(struct hak_thread *t)
{
    hak_cache_resume(t);
    t->looked_ms = 0;
}

static void abandon(struct hak_thread *t, unsigned cls)
{
    struct hak_slab *slab;
    while ((slab = t->bins[cls].slabs)) {
        hak_owned_remove(t, slab);
        if (!slab->used)
            hak_slab_untag(slab);
        if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
            hak_parts.backend->release_slab(slab);
    }
    t->bins[cls] = (struct hak_bin){0};
}

void hak_heap_abandon(struct hak_thread *t)
{
    hak_heap_each_class(t, hak_cache_drain_parked);
    hak_heap_each_class(t, abandon);
}
