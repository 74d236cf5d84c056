/* SPDX-License-Identifier: MIT
 * See heap.h. All bins of a thread at once. */
#include "heap.h"

#include <string.h>

#include "core/parts/parts.h"
#include "drain.h"
#include "owned.h"
#include "remote_cache.h"

static void *take_bin(unsigned cls)
{
    void *blocks = hak_self.head[cls];
    hak_self.head[cls] = NULL;
    return blocks;
}

static void drain_bin(struct hak_thread *t, unsigned cls)
{
    hak_drain(t, take_bin(cls));
}

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
    hak_heap_each_class(t, drain_bin);
    hak_remote_cache_flush(t); /* before the slabs are looked at: some may be this thread's own by now */
    hak_heap_each_class(t, release_idle_slabs);
}

static size_t length(const void *blocks)
{
    size_t n = 0;
    for (; blocks; blocks = hak_next_load(blocks))
        n++;
    return n;
}

size_t hak_heap_free_bytes(void)
{
    const struct hak_thread *t = hak_self.thread;
    size_t bytes = 0;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        bytes += (length(hak_self.head[cls]) + (t ? t->bins[cls].remote_count : 0)) * hak_class_usable(cls);
    return bytes;
}

size_t hak_heap_parked_bytes(const struct hak_thread *t)
{
    size_t bytes = 0;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++)
        bytes += length(t->parked_head[cls]) * hak_class_usable(cls);
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
    hak_remote_cache_flush(t);
    hak_heap_each_class(t, add_parked_bytes);
    memcpy(t->parked_head, hak_self.head, sizeof hak_self.head);
    memcpy(t->parked_room, hak_self.room, sizeof hak_self.room);
    memset(hak_self.head, 0, sizeof hak_self.head);
    memset(hak_self.room, 0, sizeof hak_self.room);
}

/* Header builds: what the thread freed before it had a descriptor. */
static void drain_early(struct hak_thread *t)
{
    for (unsigned cls = 0; HAK_HEADER_LIMIT && cls < HAK_NCLASSES; cls++)
        drain_bin(t, cls);
}

void hak_heap_resume(struct hak_thread *t)
{
    drain_early(t);
    memcpy(hak_self.head, t->parked_head, sizeof hak_self.head);
    memcpy(hak_self.room, t->parked_room, sizeof hak_self.room);
}

static void drain_parked(struct hak_thread *t, unsigned cls)
{
    hak_drain(t, t->parked_head[cls]);
    t->parked_head[cls] = NULL;
    t->parked_room[cls] = 0;
}

static void abandon(struct hak_thread *t, unsigned cls)
{
    struct hak_slab *slab;
    while ((slab = t->bins[cls].slabs)) {
        hak_owned_remove(t, slab);
        if (!slab->used)
            hak_slab_untag(slab);
        if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
            hak_parts.backend->publish(slab);
    }
    t->bins[cls] = (struct hak_bin){0};
}

void hak_heap_abandon(struct hak_thread *t)
{
    hak_heap_each_class(t, drain_parked);
    hak_heap_each_class(t, abandon);
}
