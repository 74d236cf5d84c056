/* SPDX-License-Identifier: MIT
 * From slabs to bins, and bins in their bounds.
 *
 * A refill takes, in this order: the first slab's own free blocks, and its remote ones if they are worth it; blocks
 * of others that were freed here; blocks not yet carved; the rest of the remote list; the next slab; at last a new
 * slab from the frontend. Where the thread has used the class little, slabs are shared instead (share.c). Every so
 * many frees a bin is checked: what it has beyond its capacity, the blocks freed longest ago, is drained (drain.c). */
#include "bin.h"

#include "core/base/log.h"
#include "core/pages/budget.h"
#include "core/parts/parts.h"
#include "drain.h"
#include "owned.h"
#include "remote_cache.h"
#include "share.h"

#define COLLECT_BYTES 1024u /* on a remote list are worth a trip before new blocks are cut */
#define WHOLE_LIST 4u
#define WHOLE_STRIDE 1024u
#define BORROW_MIN 4096u
#define BORROW_CLASSES 3u /* larger ones that are asked */
#define FIRST_BATCH 2u
#define INTERVAL_MIN 8u
#define INTERVAL_FIRST 32u
#define INTERVAL_MAX 256u
#define INTERVAL_BYTES (6 * HAK_MIB)
#define SLAB_WORK 64u  /* a new slab counts as so many blocks of work */

/* --- refill ------------------------------------------------------------------------------------------ */

/* A drain that finds blocks saves the trip to another slab. */
static bool collect(struct hak_thread *t, struct hak_slab *slab)
{
    uint32_t n = hak_slab_collect(slab);
    hak_count(&t->counters.remote_saved, n);
    return n != 0;
}

static bool runs_low(const struct hak_slab *slab, uint32_t waiting)
{
    return hak_slab_free_blocks(slab) + (slab->capacity - slab->carved) <= slab->capacity / 8 ||
           (!hak_slab_free_blocks(slab) && waiting * slab->stride >= COLLECT_BYTES);
}

/* Before the slab's own blocks: when many remote ones wait, or when own ones run low. */
static void collect_early(struct hak_thread *t, struct hak_slab *slab)
{
    const struct hak_option_values *o = &hak_options;
    uint32_t waiting = hak_slab_remote_count(slab);
    if (HAK_LIKELY(!waiting) || o->p0_no_drain)
        return;
    if (waiting >= o->p0_drain_thresh)
        hak_count(&t->counters.remote_early, hak_slab_collect(slab));
    else if (runs_low(slab, waiting))
        hak_count(&t->counters.remote_low_water, hak_slab_collect(slab));
}

static bool new_slab(struct hak_thread *t, unsigned cls, enum hak_refill_mode mode)
{
    if (mode == HAK_REFILL_WITHIN_BUDGET && !hak_bin_is_within_budget(cls))
        return false;
    struct hak_slab *slab = hak_parts.by_class[cls]->slab_acquire(t, cls);
    if (!slab) {
        hak_count(&t->counters.slabs_refused, 1);
        return false;
    }
    hak_slab_tag(slab, t->tag);
    hak_owned_add(t, slab);
    hak_count(&t->counters.slabs_acquired, 1);
    hak_work_add(SLAB_WORK);
    return true;
}

/* The first slab of the bin, made to have a free block. */
static struct hak_slab *usable_slab(struct hak_thread *t, unsigned cls, enum hak_refill_mode mode)
{
    struct hak_bin *b = &t->bins[cls];
    for (;;) {
        struct hak_slab *slab = b->slabs;
        if (!slab) {
            if (!new_slab(t, cls, mode))
                return NULL;
            continue;
        }
        collect_early(t, slab);
        if (hak_slab_has_free(slab) || collect(t, slab))
            return slab;
        hak_owned_remove(t, slab);
        if (!hak_slab_retire(slab)) /* a remote free came meanwhile */
            hak_owned_add(t, slab);
    }
}

bool hak_bin_is_within_budget(unsigned cls)
{
    return hak_budget_allows(hak_slab_pages[cls] * HAK_PAGE);
}

static void log_refill(const struct hak_slab *slab, uint32_t taken)
{
    bool match = slab->used + hak_slab_free_blocks(slab) == slab->carved;
    hak_log("P0 refill: slab %p, %u-byte blocks, taken %u, active %u of %u%s", (void *)slab->base, slab->stride, taken,
            slab->used, slab->capacity, match ? "" : ", MISMATCH with the blocks carved");
}

/* To count off a part of a list takes a walk, which misses the cache for each block; so a list of small blocks
 * that is not much longer than the batch is taken as it is. */
static struct hak_chain take_own(struct hak_thread *t, unsigned cls, uint32_t want, enum hak_refill_mode mode)
{
    struct hak_slab *slab = usable_slab(t, cls, mode);
    if (!slab)
        return (struct hak_chain){0};
    bool whole = want > 1 && slab->free && slab->free_count <= want * WHOLE_LIST && slab->stride <= WHOLE_STRIDE;
    struct hak_chain chain = whole ? hak_slab_take_list(slab) : hak_slab_take(slab, want);
    if (HAK_UNLIKELY(hak_options.p0_log))
        log_refill(slab, chain.count);
    return chain;
}

static struct hak_chain take_shared(struct hak_thread *t, unsigned cls, uint32_t want, enum hak_refill_mode mode)
{
    hak_owned_mark_used(t, cls); /* what goes to the bin is drained when the thread ends */
    hak_count(&t->counters.shared_refills, 1);
    return hak_share_take(t, cls, want, mode == HAK_REFILL_BEYOND_BUDGET || hak_bin_is_within_budget(cls));
}

static struct hak_chain take(struct hak_thread *t, unsigned cls, uint32_t want, enum hak_refill_mode mode)
{
    struct hak_chain chain = hak_share_is_on(&t->bins[cls], cls) ? take_shared(t, cls, want, mode)
                                                                 : take_own(t, cls, want, mode);
    hak_count(&t->counters.refills, chain.count != 0);
    hak_count(&t->counters.refill_blocks, chain.count);
    return chain;
}

void *hak_bin_take_one(struct hak_thread *t, unsigned cls, enum hak_refill_mode mode)
{
    return take_shared(t, cls, 1, mode).head;
}

static uint32_t longest_interval(const struct hak_bin *b, unsigned cls)
{
    if (hak_share_is_on(b, cls))
        return 2 * hak_share_capacity(cls) + 1;
    return (uint32_t)hak_min(INTERVAL_MAX, hak_max(INTERVAL_MIN, INTERVAL_BYTES / hak_strides[cls]));
}

/* A thread that uses a class little takes few blocks, and has few to give back when it ends. */
static void start_bin(struct hak_bin *b, unsigned cls)
{
    b->batch = (uint16_t)hak_min(FIRST_BATCH, hak_parts.batch[cls]);
    b->interval = (uint16_t)hak_min(INTERVAL_FIRST, longest_interval(b, cls));
    hak_bin_set_room(b, cls, b->interval);
}

/* No page is touched that was not before: larger blocks of neighbouring classes share what their ups and downs
 * leave free. */
void *hak_bin_borrow(struct hak_thread *t, unsigned cls)
{
    const struct hak_slab *own = t->bins[cls].slabs;
    if (hak_strides[cls] < BORROW_MIN || (own && (hak_slab_free_blocks(own) || hak_slab_remote_count(own))))
        return NULL;
    for (unsigned other = cls + 1; other < HAK_NCLASSES && other <= cls + BORROW_CLASSES; other++) {
        void *block = hak_self.head[other];
        struct hak_slab *slab = t->bins[other].slabs;
        if (block)
            hak_self.head[other] = hak_next_load(block);
        else if (slab && hak_slab_free_blocks(slab))
            block = hak_slab_take(slab, 1).head;
        if (block) {
            hak_count(&t->counters.borrowed, 1);
            return block;
        }
    }
    return NULL;
}

/* Own blocks that came back go before those of others. Else they would gather here while their places are taken by
 * others, whose owners, missing theirs, carve new ones: a random walk that nothing turns back. */
static bool has_own_free(const struct hak_bin *b)
{
    return b->slabs && (hak_slab_free_blocks(b->slabs) || hak_slab_remote_count(b->slabs));
}

void *hak_bin_refill(struct hak_thread *t, unsigned cls, enum hak_refill_mode mode)
{
    struct hak_bin *b = &t->bins[cls];
    if (!b->batch)
        start_bin(b, cls);
    b->shrinking = false;
    struct hak_chain chain = {0};
    if (!has_own_free(b))
        chain = hak_remote_cache_take(t, cls);
    if (!chain.head)
        chain = take(t, cls, b->batch, mode);
    if (!chain.head)
        return NULL;
    b->batch = (uint16_t)hak_min(b->batch * 2u, hak_parts.batch[cls]);
    hak_work_add(chain.count);
    hak_self.head[cls] = hak_next_load(chain.head);
    b->refills++;
    b->trips++;
    return chain.head;
}

void hak_bin_prewarm(struct hak_thread *t, unsigned cls, uint32_t blocks)
{
    uint32_t have = 0;
    for (const void *block = hak_self.head[cls]; block && have < blocks; block = hak_next_load(block))
        have++;
    while (have < blocks) {
        struct hak_chain chain = take(t, cls, blocks - have, HAK_REFILL_WITHIN_BUDGET);
        if (!chain.head)
            break;
        void *last = chain.head;
        while (hak_next_load(last))
            last = hak_next_load(last);
        hak_next_store(last, hak_self.head[cls]);
        hak_self.head[cls] = chain.head;
        have += chain.count;
    }
    hak_count(&t->counters.prewarmed, have);
}

/* --- checking a bin ----------------------------------------------------------------------------------- */

static void *take_bin(unsigned cls)
{
    void *blocks = hak_self.head[cls];
    hak_self.head[cls] = NULL;
    return blocks;
}

void hak_bin_leave(unsigned cls)
{
    hak_self.room[cls] = 0;
    hak_drain(NULL, take_bin(cls));
}

/* Cuts a list behind its first `keep` blocks; returns the rest. */
static void *cut(void *block, uint32_t keep)
{
    for (uint32_t i = 1; block && i < keep; i++)
        block = hak_next_load(block);
    if (!block)
        return NULL;
    void *rest = hak_next_load(block);
    hak_next_store(block, NULL);
    return rest;
}

/* A bin in balance is checked less and less often; one that overflows, often. One that overflowed and was
 * not refilled since belongs to a program that frees a lot: it keeps nothing, which spares a walk. */
void hak_bin_check(struct hak_thread *t, unsigned cls)
{
    struct hak_bin *b = &t->bins[cls];
    uint32_t keep = hak_share_is_on(b, cls) ? hak_share_capacity(cls) : hak_parts.capacity[cls];
    hak_owned_mark_used(t, cls);
    hak_work_add((uint32_t)hak_min(b->interval, HAK_BIN_BEAT));
    void *rest = b->shrinking || !keep ? take_bin(cls) : cut(hak_self.head[cls], keep);
    hak_count(&t->counters.checks, 1);
    if (rest) {
        hak_count(&t->counters.overflows, 1);
        b->shrinking = true;
        b->interval = (uint16_t)hak_min(longest_interval(b, cls), hak_max(INTERVAL_MIN, keep));
        hak_drain(t, rest);
    } else {
        b->interval = (uint16_t)hak_min(longest_interval(b, cls), hak_max(INTERVAL_MIN, b->interval * 2u));
    }
    hak_bin_set_room(b, cls, b->interval);
}
