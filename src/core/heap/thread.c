/* SPDX-License-Identifier: MIT
 * Threads begin at their first slow path and end in the destructor of one pthread key. See thread.h. */
#include "thread.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/memcheck.h"
#include "core/base/work.h"
#include "core/os/meta.h"
#include "core/os/rseq.h"
#include "core/parts/parts.h"
#include "heap.h"
#include "quarantine.h"
#include "share.h"
#include "slots.h"

#define PARK_BYTES (32 * HAK_MIB) /* cut from the slabs of all parked threads, at most */
#define WARM 16u /* recycled descriptors that keep their slots */

HAK_LOCK(hak_thread_lock, HAK_RANK_THREADS);
HAK_LOCK(hak_orphan_lock, HAK_RANK_ORPHAN);

/* Under hak_thread_lock. */
static struct hak_thread *live, *parked, *recycled;
static uint32_t live_count;
static uint32_t ids = 1; /* 0 means none, 1 is HAK_TAG_SHARED's */
static struct hak_counters ended_counters;
static uint64_t started, resumed, pinned_slabs;
static _Atomic(uint32_t) parked_count, recycled_count; /* written under the lock, */
static _Atomic(size_t) parked_bytes;                   /* as is this */

static _Atomic(uint32_t) drain_request;
static _Atomic(uint32_t) ended_work; /* of ended threads, since a pulse: the next thread goes on with it */
static pthread_key_t key;
static bool key_exists; /* without one threads keep what they had, nothing breaks */
static struct hak_thread orphan;

static void link_live(struct hak_thread *t)
{
    HAK_LIST_PUSH(&live, t);
    hak_share_set_threads(++live_count);
}

static void unlink_live(struct hak_thread *t)
{
    HAK_LIST_REMOVE(&live, t);
    hak_share_set_threads(--live_count);
}

static void unlink_parked(struct hak_thread *t)
{
    HAK_LIST_REMOVE(&parked, t);
    HAK_SUB_RELAXED(&parked_count, 1);
    HAK_SUB_RELAXED(&parked_bytes, t->parked_bytes);
}

/* A parked descriptor comes with blocks and slabs. A recycled one has none, and its owner tag may be used again:
 * tags are hints, and the last holder owns nothing any more. */
struct hak_thread *hak_thread_new(void)
{
    hak_lock_acquire(&hak_thread_lock);
    struct hak_thread *t;
    if ((t = parked)) {
        unlink_parked(t);
        resumed++;
    } else if ((t = recycled)) {
        recycled = t->next;
        HAK_SUB_RELAXED(&recycled_count, 1);
    } else {
        t = hak_meta_alloc(sizeof *t);
        if (t)
            t->tag = (uint64_t)++ids << 32;
    }
    if (t) {
        link_live(t);
        started++;
    }
    hak_lock_release(&hak_thread_lock);
    return t;
}

void hak_thread_start_parts(struct hak_thread *t)
{
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->thread_start)
            hak_frontends[i]->thread_start(t);
}

/* Not inline, as the next one: hak_thread_get is on the way of each slow call, and saves no register for them. */
static HAK_COLD struct hak_thread *start_thread(void)
{
    if (hak_self.ended || hak_rseq_is_on())
        return NULL;
    struct hak_thread *t = hak_thread_new();
    if (!t)
        return NULL;
    t->drain_done = HAK_LOAD_RELAXED(&drain_request);
    hak_self.tag = hak_quarantine_is_on() ? HAK_TAG_NOBODY : t->tag;
    hak_self.thread = t; /* before setspecific, which may allocate */
    hak_counters_own = &t->counters;
    hak_heap_resume(t);
    if (HAK_LOAD_RELAXED(&ended_work))
        hak_work_add(HAK_EXCHANGE_RELAXED(&ended_work, 0));
    int saved = errno;
    if (key_exists)
        pthread_setspecific(key, t);
    hak_thread_start_parts(t);
    errno = saved;
    return t;
}

/* Who asked may have cleared tags (hak_space_untag_open), for this thread to come here. */
static void tag_again(struct hak_thread *t, unsigned cls)
{
    for (struct hak_slab *slab = t->bins[cls].slabs; slab; slab = slab->next)
        hak_slab_tag(slab, t->tag);
}

static HAK_COLD struct hak_thread *drain_for_request(struct hak_thread *t, uint32_t request)
{
    t->drain_done = request;
    hak_heap_drain(t);
    hak_heap_each_class(t, tag_again);
    return t;
}

struct hak_thread *hak_thread_get(void)
{
    struct hak_thread *t = hak_self.thread;
    uint32_t request = HAK_LOAD_RELAXED(&drain_request);
    if (HAK_UNLIKELY(!t))
        return start_thread();
    return HAK_LIKELY(t->drain_done == request) ? t : drain_for_request(t, request);
}

void hak_thread_ask_drain(void)
{
    HAK_ADD_RELAXED(&drain_request, 1);
}

struct hak_thread *hak_thread_orphan_acquire(void)
{
    hak_lock_acquire(&hak_orphan_lock);
    orphan.tag = HAK_TAG_SHARED;
    return &orphan;
}

void hak_thread_orphan_release(void)
{
    hak_lock_release(&hak_orphan_lock);
}

void hak_thread_recycle(struct hak_thread *t)
{
    hak_lock_acquire(&hak_thread_lock);
    unlink_live(t);
    hak_counters_add(&ended_counters, &t->counters);
    uint64_t tag = t->tag;
    memset(t, 0, offsetof(struct hak_thread, bins)); /* the bins were cleared one by one */
    t->tag = tag;
    t->next = recycled;
    recycled = t;
    HAK_ADD_RELAXED(&recycled_count, 1);
    hak_lock_release(&hak_thread_lock);
}

void hak_thread_end_parts(struct hak_thread *t)
{
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->thread_end)
            hak_frontends[i]->thread_end(t);
}

static void dissolve(struct hak_thread *t)
{
    hak_heap_abandon(t);
    if (HAK_LOAD_RELAXED(&recycled_count) >= WARM)
        hak_slots_release(t);
    hak_thread_recycle(t);
}

/* Nobody else gets what waits for the next thread, so it must not be much. */
static bool list_has_room(size_t bytes)
{
    return HAK_LOAD_RELAXED(&parked_bytes) + bytes <= PARK_BYTES &&
           HAK_LOAD_RELAXED(&parked_count) < hak_options.parked_threads;
}

static bool try_retire(struct hak_thread *t)
{
    if (hak_parts.release->at_once)
        return false;
    hak_lock_acquire(&hak_thread_lock);
    bool room = list_has_room(t->parked_bytes);
    if (room) {
        unlink_live(t);
        HAK_LIST_PUSH(&parked, t);
        HAK_ADD_RELAXED(&parked_count, 1);
        HAK_ADD_RELAXED(&parked_bytes, t->parked_bytes);
    }
    hak_lock_release(&hak_thread_lock);
    return room;
}

/* One that has been parked since then; on the list of live ones again, so that its numbers count. */
static struct hak_thread *take_parked(uint64_t since_ms)
{
    struct hak_thread *t;
    hak_lock_acquire(&hak_thread_lock);
    for (t = parked; t && t->parked_ms > since_ms; t = t->next)
        ;
    if (t) {
        unlink_parked(t);
        link_live(t);
    }
    hak_lock_release(&hak_thread_lock);
    return t;
}

void hak_thread_break_up(uint64_t since_ms)
{
    struct hak_thread *t;
    while (HAK_LOAD_RELAXED(&parked_count) && (t = take_parked(since_ms)))
        dissolve(t);
}

/* The destructor. Other libraries' destructors may still allocate and free after it: such calls find the
 * `ended` cache, which sends them to the orphan. */
static void end_thread(void *value)
{
    HAK_UNSEEN;
    struct hak_thread *t = value;
    if (t != hak_self.thread)
        return;
    int saved = errno;
    hak_thread_end_parts(t);
    hak_heap_park(t);
    hak_self.tag = HAK_TAG_NOBODY;
    hak_self.thread = NULL;
    hak_counters_own = NULL;
    hak_self.ended = true;
    t->parked_ms = hak_clock_ms();
    if (hak_work)
        HAK_ADD_RELAXED(&ended_work, hak_work);
    if (!try_retire(t))
        dissolve(t);
    errno = saved;
}

void hak_thread_make_key(void)
{
    key_exists = key_exists || !pthread_key_create(&key, end_thread);
}

void hak_thread_fork_child(void)
{
    struct hak_thread *t = live, *next;
    if (hak_rseq_is_on())
        return; /* the heaps of processors came along whole */
    live = NULL;
    live_count = 0;
    for (; t; t = next) {
        next = t->next;
        if (t == hak_self.thread) {
            link_live(t);
        } else {
            pinned_slabs += HAK_LOAD_RELAXED(&t->slabs);
            hak_counters_add(&ended_counters, &t->counters);
        }
    }
}

static void add_thread(struct hak_thread_totals *totals, const struct hak_thread *t)
{
    totals->active_slabs += HAK_LOAD_RELAXED(&t->slabs);
    hak_counters_add(&totals->counters, &t->counters);
}

void hak_thread_totals(struct hak_thread_totals *totals)
{
    hak_lock_acquire(&hak_thread_lock);
    memset(totals, 0, sizeof *totals);
    totals->started = started;
    totals->parked = HAK_LOAD_RELAXED(&parked_count);
    totals->resumed = resumed;
    totals->pinned_slabs = pinned_slabs;
    hak_counters_add(&totals->counters, &ended_counters);
    hak_counters_add(&totals->counters, &orphan.counters);
    hak_counters_add(&totals->counters, &hak_counters_nobodys);
    for (struct hak_thread *t = live; t; t = t->next, totals->threads++)
        add_thread(totals, t);
    for (struct hak_thread *t = parked; t; t = t->next)
        add_thread(totals, t);
    hak_lock_release(&hak_thread_lock);
}

size_t hak_thread_free_bytes(void)
{
    size_t bytes = hak_heap_free_bytes();
    hak_lock_acquire(&hak_thread_lock);
    for (const struct hak_thread *t = parked; t; t = t->next)
        bytes += hak_heap_parked_bytes(t);
    for (const struct hak_thread *t = hak_rseq_is_on() ? live : NULL; t; t = t->next)
        bytes += hak_heap_parked_bytes(t);
    hak_lock_release(&hak_thread_lock);
    return bytes;
}
