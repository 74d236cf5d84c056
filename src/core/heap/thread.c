/* SPDX-License-Identifier: MIT
 * See thread.h. */
#include "thread.h"

#include <pthread.h>

#include "arena.h"
#include "caches/contract.h"
#include "core/base/memcheck.h"
#include "core/base/text.h"
#include "core/base/work.h"
#include "core/heap/quarantine.h"
#include "core/os/cgroup.h"
#include "core/os/meta.h"
#include "cpu_heaps.h"
#include "decay.h"
#include "heaps.h"

HAK_OPTIONAL(hak_front_end);
struct hak_front hak_no_front = {.tag = HAK_TAG_NOBODY};
HAK_THREAD_LOCAL struct hak_front *hak_front = &hak_no_front;

_Atomic(uint32_t) hak_flush_request;
static _Atomic(uint32_t) ended_work; /* work of ended threads since their last tick, which the next thread takes over */
static pthread_key_t key;
/* Without a key, ended threads keep their heaps, and nothing breaks. While the key is made, threads use the orphan. */
static _Atomic(unsigned) key_state;
enum { NO_KEY, KEY_BEING_MADE, KEY_EXISTS, KEY_REFUSED };

/* --- who has a heap ---------------------------------------------------------------------------------------- */

#define LIGHT_STEPS 4u  /* maintenance steps, after which a thread counts as busy */
#define BUSY_PER_CPU 4u /* most threads that are busy at a time, for each CPU: with more, further ones stay light */
#define PERIOD_LG 10u   /* ms: a thread that takes no step for so long is not busy */

static _Atomic(bool) first_began; /* the process's first thread is busy at once */
/* The current period, and the busy threads in it and in the one before. */
static _Atomic(uint32_t) period, busy_now, busy_before;

static void begin_period(uint32_t now)
{
    uint32_t last = HAK_LOAD_RELAXED(&period);
    if (last == now || !HAK_CAS_RELAXED(&period, &last, now))
        return;
    HAK_STORE_RELAXED(&busy_before, last + 1 == now ? HAK_LOAD_RELAXED(&busy_now) : 0);
    HAK_STORE_RELAXED(&busy_now, 0);
}

void hak_thread_step(uint64_t now_ms)
{
    struct hak_heap *heap = hak_self.heap;
    uint32_t now = (uint32_t)(now_ms >> PERIOD_LG);
    begin_period(now);
    if (heap && heap->busy_in != now) {
        heap->busy_in = now;
        HAK_ADD_RELAXED(&busy_now, 1);
    }
    if (heap || hak_self.ended || hak_self.steps++ < LIGHT_STEPS)
        return;
    hak_self.steps = LIGHT_STEPS;
    uint32_t busy = (uint32_t)hak_max(HAK_LOAD_RELAXED(&busy_now), HAK_LOAD_RELAXED(&busy_before));
    if (busy < BUSY_PER_CPU * hak_cpus()) {
        HAK_ADD_RELAXED(&busy_now, 1);
        if (HAK_CPU_HEAPS)
            hak_cpu_heap_give_up_slabs();
        hak_self.busy = true;
    }
}

static bool is_light(void)
{
    bool first = !HAK_LOAD_RELAXED(&first_began) && !HAK_EXCHANGE_RELAXED(&first_began, true);
    bool warm = hak_options.tiny_prewarm || hak_options.pool_prewarm; /* these fill bins at the start */
    return HAK_CPU_HEAPS && !hak_self.busy && !first && !warm;
}

static struct hak_heap *start_thread(void)
{
    unsigned state = HAK_LOAD_ACQUIRE(&key_state);
    if (hak_self.ended || state == KEY_BEING_MADE || is_light())
        return NULL;
    struct hak_heap *heap = hak_heap_new(NULL);
    if (!heap)
        return NULL;
    heap->flush_done = HAK_LOAD_RELAXED(&hak_flush_request);
    heap->busy_in = HAK_LOAD_RELAXED(&period);
    hak_self.busy = true;
    hak_self.light = false;
    hak_self.tag = hak_quarantine_is_on() ? HAK_TAG_NOBODY : heap->tag;
    hak_self.heap = heap; /* this comes before setspecific, which may allocate */
    hak_counters_own = &heap->counters;
    hak_cache_begin(heap);
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

static struct hak_meta_list unused_caches;
static HAK_LOCK(caches_lock, HAK_RANK_HEAPS);

/* Its heap, if it has one, finds it there. */
static void move_cache(struct hak_cache *to, const struct hak_cache *from)
{
    struct hak_heap *heap = from->heap;
    if (heap)
        hak_heap_begin_change(heap);
    hak_move(to, from, sizeof *to);
    if (!heap)
        return;
    if (heap->cache)
        heap->cache = to;
    hak_heap_end_change(heap);
}

bool hak_thread_suspend(void)
{
    hak_lock_acquire(&caches_lock);
    struct hak_cache *cache = hak_meta_new(&unused_caches, sizeof *cache);
    hak_lock_release(&caches_lock);
    if (!cache)
        return false;
    move_cache(cache, &hak_self);
    hak_suspended = cache;
    for (unsigned cls = 0; cls < HAK_NCLASSES; cls++) {
        hak_self.bin[cls] = HAK_NO_BIN;
        hak_self.room[cls] = HAK_ROOM_NEVER;
    }
    hak_self.tag = HAK_CPU_HEAPS ? HAK_TAG_SHARED : HAK_TAG_NOBODY;
    hak_self.heap = NULL;
    hak_self.light = false;
    hak_self.ended = true;
    hak_counters_own = NULL;
    return true;
}

void hak_thread_resume(void)
{
    struct hak_cache *cache = hak_suspended;
    move_cache(&hak_self, cache);
    hak_suspended = NULL;
    hak_counters_own = hak_self.heap ? &hak_self.heap->counters : NULL;
    hak_lock_acquire(&caches_lock);
    hak_meta_recycle(&unused_caches, cache);
    hak_lock_release(&caches_lock);
}

bool hak_thread_will_end(void)
{
    bool suspended = hak_suspended != NULL;
    if (suspended)
        hak_thread_resume();
    hak_self.busy = true;
    struct hak_heap *heap = hak_thread_heap();
    bool will = heap && heap->cache;
    return (!suspended || hak_thread_suspend()) && will;
}

void hak_thread_request_flush(void)
{
    HAK_ADD_RELAXED(&hak_flush_request, 1);
}

/* The destructor. Other libraries' destructors may still allocate and free after it: such calls find the `ended` cache,
 * which sends them to the heap of the CPU, or to the orphan. */
static void end_thread(void *value)
{
    HAK_UNSEEN;
    struct hak_heap *heap = value;
    if (hak_suspended)
        hak_thread_resume();
    if (heap != hak_self.heap)
        return;
    if (hak_front != &hak_no_front)
        hak_front_end();
    hak_heap_begin_change(heap);
    hak_heap_end_parts(heap);
    hak_self.tag = HAK_CPU_HEAPS ? HAK_TAG_SHARED : HAK_TAG_NOBODY;
    hak_self.heap = NULL;
    hak_self.ended = true;
    hak_counters_own = NULL;
    if (hak_work)
        HAK_ADD_RELAXED(&ended_work, hak_work);
    hak_heap_dissolve(heap);
}

void hak_thread_make_key(void)
{
    unsigned state = NO_KEY;
    if (HAK_CAS_RELAXED(&key_state, &state, KEY_BEING_MADE))
        HAK_STORE_RELEASE(&key_state, pthread_key_create(&key, end_thread) ? KEY_REFUSED : KEY_EXISTS);
}
