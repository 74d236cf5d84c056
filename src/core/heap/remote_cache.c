/* SPDX-License-Identifier: MIT
 * See remote_cache.h. */
#include "remote_cache.h"

#include "core/base/work.h"
#include "core/parts/parts.h"
#include "drain.h"
#include "owned.h"
#include "share.h"

#define REMOTE_MIN 4u      /* fewer blocks do not serve a refill, */
#define REMOTE_LARGE 1024u /* unless they are larger than this; such ones gather in smaller numbers */

/* So many blocks wait here, where their owner does without them. */
static uint32_t capacity_of(unsigned cls)
{
    uint32_t capacity = hak_parts.capacity[cls];
    return hak_strides[cls] <= REMOTE_LARGE ? capacity : (uint32_t)hak_min(capacity, hak_max(2, capacity / 4));
}

static void *take_all(struct hak_bin *b)
{
    void *blocks = b->remote_cache;
    b->remote_cache = NULL;
    b->remote_count = 0;
    return blocks;
}

void hak_remote_cache_flush_class(struct hak_thread *t, unsigned cls)
{
    if (t->bins[cls].remote_cache)
        hak_drain(t, take_all(&t->bins[cls]));
}

/* What a thread that shares the class keeps of it, the blocks freed last. */
static void flush_rest(struct hak_thread *t, unsigned cls, uint32_t keep)
{
    struct hak_bin *b = &t->bins[cls];
    void *last = b->remote_cache;
    for (uint32_t i = 1; i < keep; i++)
        last = hak_next_load(last);
    void *rest = hak_next_load(last);
    hak_next_store(last, NULL);
    b->remote_count = (uint16_t)keep;
    hak_drain(t, rest);
}

void hak_remote_cache_check(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    bool shares = hak_share_is_on(b, cls);
    uint32_t keep = shares ? hak_share_capacity(cls) : 0;
    hak_owned_mark_used(t, cls);
    b->remote_capacity = (uint16_t)(shares ? keep + hak_max(1, keep / 2) : capacity_of(cls));
    if (b->remote_count < b->remote_capacity)
        return;
    hak_work_add(b->remote_count);
    b->trips++;
    if (keep)
        flush_rest(t, cls, keep);
    else
        hak_remote_cache_flush_class(t, cls);
}

void hak_remote_cache_flush(struct hak_thread *t)
{
    hak_heap_each_class(t, hak_remote_cache_flush_class);
}

/* A few blocks go home rather: of a class that is freed here but seldom used, and, if two threads came to use
 * blocks of one cache line by handing one over, so that they do not share it forever. */
struct hak_chain hak_remote_cache_take(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    uint32_t count = b->remote_count;
    if (!count || (count < REMOTE_MIN && hak_strides[cls] <= REMOTE_LARGE && !hak_share_is_on(b, cls)))
        return (struct hak_chain){0};
    hak_count(&t->counters.remote_reused, count);
    return (struct hak_chain){.head = take_all(b), .count = count};
}
