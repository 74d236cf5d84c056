/* SPDX-License-Identifier: MIT
 * Threads begin at their first slow path and end in the destructor of one pthread key. See thread.h. */
#include "thread.h"

#include <string.h>

#include "bin.h"
#include "dispatch.h"
#include "meta.h"
#include "os.h"

#define PARK_BYTES (32 * HAK_MIB) /* cut from the slabs of all parked threads, at most */

__thread struct hak_cache hak_self __attribute__((tls_model("initial-exec"))) = {.tag = HAK_TAG_NOBODY};

struct hak_lock hak_thread_lock = HAK_LOCK_INIT(HAK_RANK_THREADS);
struct hak_lock hak_orphan_lock = HAK_LOCK_INIT(HAK_RANK_ORPHAN);

/* Under hak_thread_lock. */
static struct hak_thread *live, *parked, *recycled;
static uint32_t ids = 1; /* 0 means none, 1 is the orphan */
static struct hak_thread_counters ended_counters, nobodys_counters;
static uint64_t started, resumed, pinned_slabs;
static _Atomic(uint32_t) parked_count; /* both written under the lock */
static _Atomic(size_t) parked_bytes;

static _Atomic(uint32_t) drain_request;
static pthread_key_t key;
static _Atomic(bool) key_exists;
static struct hak_thread orphan;

static void link_first(struct hak_thread **list, struct hak_thread *t)
{
    t->prev = NULL;
    t->next = *list;
    if (*list)
        (*list)->prev = t;
    *list = t;
}

static void unlink_from(struct hak_thread **list, struct hak_thread *t)
{
    *(t->prev ? &t->prev->next : list) = t->next;
    if (t->next)
        t->next->prev = t->prev;
}

static void unlink_parked(struct hak_thread *t)
{
    unlink_from(&parked, t);
    atomic_fetch_sub_explicit(&parked_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&parked_bytes, t->parked_bytes, memory_order_relaxed);
}

/* A parked descriptor comes with blocks and slabs. A recycled one has none, and its owner tag may be used again:
 * tags are hints, and the last holder owns nothing any more. */
static struct hak_thread *new_descriptor(void)
{
    hak_lock_acquire(&hak_thread_lock);
    struct hak_thread *t;
    if ((t = parked)) {
        unlink_parked(t);
        resumed++;
    } else if ((t = recycled)) {
        recycled = t->next;
    } else {
        t = hak_meta_alloc(sizeof *t);
        if (t)
            t->tag = (uint64_t)++ids << 32;
    }
    if (t) {
        link_first(&live, t);
        started++;
    }
    hak_lock_release(&hak_thread_lock);
    return t;
}

static void each_frontend_start(struct hak_thread *t)
{
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->thread_start)
            hak_frontends[i]->thread_start(t);
}

static struct hak_thread *start_thread(void)
{
    if (hak_self.ended || !hak_init())
        return NULL;
    struct hak_thread *t = new_descriptor();
    if (!t)
        return NULL;
    t->drain_done = atomic_load_explicit(&drain_request, memory_order_relaxed);
    hak_self.tag = t->tag;
    hak_self.thread = t; /* before setspecific, which may allocate */
    hak_bin_resume_all(t);
    if (atomic_load_explicit(&key_exists, memory_order_acquire))
        pthread_setspecific(key, t);
    each_frontend_start(t);
    return t;
}

static void drain_if_asked(struct hak_thread *t)
{
    uint32_t request = atomic_load_explicit(&drain_request, memory_order_relaxed);
    if (HAK_UNLIKELY(t->drain_done != request)) {
        t->drain_done = request;
        hak_bin_drain_all(t);
    }
}

struct hak_thread *hak_thread_get(void)
{
    struct hak_thread *t = hak_self.thread;
    if (HAK_UNLIKELY(!t))
        return start_thread();
    drain_if_asked(t);
    return t;
}

void hak_thread_ask_drain(void)
{
    atomic_fetch_add_explicit(&drain_request, 1, memory_order_relaxed);
}

struct hak_thread *hak_thread_orphan_acquire(void)
{
    hak_lock_acquire(&hak_orphan_lock);
    orphan.tag = (uint64_t)1 << 32;
    return &orphan;
}

void hak_thread_orphan_release(void)
{
    hak_lock_release(&hak_orphan_lock);
}

#if HAK_COUNTING
/* A thread's first calls, before it has a descriptor, are not counted. */
void hak_count_malloc(void)
{
    if (hak_self.thread)
        HAK_COUNT(hak_self.thread, mallocs, 1);
}

void hak_count_free(void)
{
    if (hak_self.thread)
        HAK_COUNT(hak_self.thread, frees, 1);
}
#endif

/* Threads without descriptor count here; all others in their own, which nobody else writes. */
void hak_slab_count(enum hak_slab_state from, enum hak_slab_state to)
{
    struct hak_thread *t = hak_self.thread;
    if (HAK_LIKELY(t))
        HAK_COUNT(t, transitions[from][to], 1);
    else
        atomic_fetch_add_explicit(&nobodys_counters.transitions[from][to], 1, memory_order_relaxed);
}

static void add_counters(struct hak_thread_counters *sum, const struct hak_thread_counters *c)
{
    _Atomic(uint64_t) *to = (_Atomic(uint64_t) *)sum;
    const _Atomic(uint64_t) *from = (const _Atomic(uint64_t) *)c;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        atomic_store_explicit(&to[i],
                              atomic_load_explicit(&to[i], memory_order_relaxed) +
                                  atomic_load_explicit(&from[i], memory_order_relaxed),
                              memory_order_relaxed);
}

static void recycle(struct hak_thread *t)
{
    hak_lock_acquire(&hak_thread_lock);
    unlink_from(&live, t);
    add_counters(&ended_counters, &t->counters);
    uint64_t tag = t->tag;
    memset(t, 0, offsetof(struct hak_thread, bins)); /* the bins were cleared one by one */
    t->tag = tag;
    t->next = recycled;
    recycled = t;
    hak_lock_release(&hak_thread_lock);
}

static void break_up(struct hak_thread *t)
{
    hak_bin_abandon_all(t);
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->thread_end)
            hak_frontends[i]->thread_end(t);
    recycle(t);
}

/* Nobody else gets what waits for the next thread, so it must not be much. */
static bool has_room(size_t bytes)
{
    return atomic_load_explicit(&parked_bytes, memory_order_relaxed) + bytes <= PARK_BYTES &&
           atomic_load_explicit(&parked_count, memory_order_relaxed) < hak_dispatch.options.parked_threads;
}

static bool park(struct hak_thread *t)
{
    if (hak_dispatch.release->at_once)
        return false;
    hak_lock_acquire(&hak_thread_lock);
    bool room = has_room(t->parked_bytes);
    if (room) {
        unlink_from(&live, t);
        link_first(&parked, t);
        atomic_fetch_add_explicit(&parked_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&parked_bytes, t->parked_bytes, memory_order_relaxed);
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
        link_first(&live, t);
    }
    hak_lock_release(&hak_thread_lock);
    return t;
}

void hak_thread_break_up(uint64_t since_ms)
{
    struct hak_thread *t;
    while (atomic_load_explicit(&parked_count, memory_order_relaxed) && (t = take_parked(since_ms)))
        break_up(t);
}

/* The destructor. Other libraries' destructors may still allocate and free after it: such calls find the
 * `ended` cache, which sends them to the orphan. */
static void end_thread(void *value)
{
    struct hak_thread *t = value;
    if (t != hak_self.thread)
        return;
    int saved = errno;
    for (unsigned i = 0; hak_frontends[i]; i++)
        if (hak_frontends[i]->thread_ending)
            hak_frontends[i]->thread_ending(t);
    hak_bin_park_all(t);
    hak_self.tag = HAK_TAG_NOBODY;
    hak_self.thread = NULL;
    hak_self.ended = true;
    t->parked_ms = hak_os_coarse_ms();
    if (!park(t))
        break_up(t);
    errno = saved;
}

HAK_STARTUP void hak_thread_constructor(void)
{
    if (pthread_key_create(&key, end_thread))
        return; /* no key left: threads keep what they had, nothing breaks */
    atomic_store_explicit(&key_exists, true, memory_order_release);
    if (hak_self.thread)
        pthread_setspecific(key, hak_self.thread);
}

void hak_thread_fork_child(void)
{
    struct hak_thread *self = hak_self.thread;
    for (struct hak_thread *t = live; t; t = t->next)
        if (t != self) {
            pinned_slabs += atomic_load_explicit(&t->slabs, memory_order_relaxed);
            add_counters(&ended_counters, &t->counters);
        }
    live = NULL;
    if (self)
        link_first(&live, self);
}

static void add_thread(struct hak_thread_totals *totals, const struct hak_thread *t)
{
    totals->active_slabs += atomic_load_explicit(&t->slabs, memory_order_relaxed);
    add_counters(&totals->counters, &t->counters);
}

void hak_thread_totals(struct hak_thread_totals *totals)
{
    hak_lock_acquire(&hak_thread_lock);
    memset(totals, 0, sizeof *totals);
    totals->started = started;
    totals->parked = atomic_load_explicit(&parked_count, memory_order_relaxed);
    totals->resumed = resumed;
    totals->pinned_slabs = pinned_slabs;
    add_counters(&totals->counters, &ended_counters);
    add_counters(&totals->counters, &orphan.counters);
    add_counters(&totals->counters, &nobodys_counters);
    for (struct hak_thread *t = live; t; t = t->next, totals->threads++)
        add_thread(totals, t);
    for (struct hak_thread *t = parked; t; t = t->next)
        add_thread(totals, t);
    hak_lock_release(&hak_thread_lock);
}
