/* SPDX-License-Identifier: MIT
 * See thread.h. */
#include "thread.h"

#include <pthread.h>

#include "bins.h"
#include "core/base/clock.h"
#include "core/base/memcheck.h"
#include "core/base/work.h"
#include "heaps.h"
#include "quarantine.h"

_Atomic(uint32_t) hak_flush_request;
static _Atomic(uint32_t) ended_work; /* of ended threads since their last tick; the next thread takes it over */
static pthread_key_t key;
/* Without a key, ended threads keep their heaps; nothing breaks. While it is made, threads use the orphan. */
static _Atomic(unsigned) key_state;
enum { NO_KEY, KEY_BEING_MADE, KEY_EXISTS, KEY_REFUSED };

static struct hak_heap *start_thread(void)
{
    unsigned state = HAK_LOAD_ACQUIRE(&key_state);
    if (hak_self.ended || hak_heaps_are_of_cpus() || state == KEY_BEING_MADE)
        return NULL;
    struct hak_heap *heap = hak_heap_new();
    if (!heap)
        return NULL;
    heap->flush_done = HAK_LOAD_RELAXED(&hak_flush_request);
    hak_self.tag = hak_quarantine_is_on() ? HAK_TAG_NOBODY : heap->tag;
    hak_self.heap = heap; /* before setspecific, which may allocate */
    hak_counters_own = &heap->counters;
    hak_bins_resume(heap);
    if (HAK_LOAD_RELAXED(&ended_work))
        hak_work_add(HAK_EXCHANGE_RELAXED(&ended_work, 0));
    int saved = errno;
    bool will_end = state == KEY_EXISTS && !pthread_setspecific(key, heap);
    errno = saved;
    hak_heap_start_parts(heap);
    if (will_end) {
        hak_heap_begin_change(heap);
        heap->cache = &hak_self;
        hak_heap_end_change(heap);
    }
    return heap;
}

/* The thread that requested the flush may have cleared tags (hak_space_untag_open), so that this thread comes here. */
static void tag_again(struct hak_heap *heap, unsigned cls)
{
    for (struct hak_slab *slab = heap->bins[cls].slabs; slab; slab = slab->next)
        hak_slab_tag(slab, heap->tag);
}

struct hak_heap *hak_thread_heap_slow(void)
{
    struct hak_heap *heap = hak_self.heap;
    if (!heap)
        return start_thread();
    heap->flush_done = HAK_LOAD_RELAXED(&hak_flush_request);
    hak_heap_begin_change(heap);
    hak_bins_flush(heap);
    hak_heap_each_class(heap, tag_again);
    hak_heap_end_change(heap);
    return heap;
}

void hak_thread_request_flush(void)
{
    HAK_ADD_RELAXED(&hak_flush_request, 1);
}

/* The destructor. Other libraries' destructors may still allocate and free after it: such calls find the
 * `ended` cache, which sends them to the orphan. */
static void end_thread(void *value)
{
    HAK_UNSEEN;
    struct hak_heap *heap = value;
    if (heap != hak_self.heap)
        return;
    hak_heap_begin_change(heap);
    hak_heap_end_parts(heap);
    hak_bins_retire(heap);
    hak_self.tag = HAK_TAG_NOBODY;
    hak_self.heap = NULL;
    heap->cache = NULL;
    hak_counters_own = NULL;
    hak_self.ended = true;
    heap->retired_ms = hak_clock_ms();
    if (hak_work)
        HAK_ADD_RELAXED(&ended_work, hak_work);
    hak_heap_retire_or_dissolve(heap);
}

void hak_thread_make_key(void)
{
    unsigned state = NO_KEY;
    if (HAK_CAS_RELAXED(&key_state, &state, KEY_BEING_MADE))
        HAK_STORE_RELEASE(&key_state, pthread_key_create(&key, end_thread) ? KEY_REFUSED : KEY_EXISTS);
}
