/* SPDX-License-Identifier: MIT
 * From slabs to bins, and bins in their bounds.
 *
 * A refill takes, in this order: the first slab's own free blocks, and its remote ones if they are worth it;
 * foreign blocks that were freed here; blocks not yet carved; the rest of the remote list; the next slab; at last
 * a new slab from the frontend. Every so many frees a bin is looked at: what it has beyond its limit, the blocks
 * freed longest ago, is drained (drain.c), and so are foreign blocks beyond a limit. */
#include "bin.h"

#include "background.h"
#include "dispatch.h"
#include "limit.h"
#include "log.h"
#include "owned.h"

#define FOREIGN_MIN 4u       /* fewer foreign blocks do not serve a refill, */
#define FOREIGN_LARGE 1024u /* unless they are larger than this; such ones gather in smaller numbers */
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
#define BEAT 128u       /* frees of a class between two heartbeats; each look at a bin is one, too */
#define SHORT_BEAT 16u  /* the same while idle memory waits to go back */
#define CLOCK_WORK 256u /* blocks that pass a slow path between two looks at the clock */

/* The heartbeat of purging. The clock is read once for so many blocks, not at each trip, unless work waits. */
static void tick(struct hak_thread *t, uint32_t blocks)
{
    t->clock_work += blocks;
    if (t->clock_work < CLOCK_WORK && !hak_age_pending())
        return;
    t->clock_work = 0;
    hak_age();
}

uint32_t hak_bin_limit(unsigned bin)
{
    return hak_dispatch.bin_limit[bin];
}

/* --- the bins that a thread has used ---------------------------------------------------------------- */

/* Calls `visit` for each bin that the thread has used. */
static void each_bin(struct hak_thread *t, void (*visit)(struct hak_thread *t, unsigned bin))
{
    for (unsigned word = 0; word < sizeof t->used_bins / sizeof t->used_bins[0]; word++)
        for (uint64_t bits = t->used_bins[word]; bits; bits &= bits - 1)
            visit(t, word * 64 + (unsigned)__builtin_ctzll(bits));
}

/* --- foreign blocks ---------------------------------------------------------------------------------- */

/* So many blocks wait here, where their owner does without them. */
static uint32_t foreign_limit(unsigned bin)
{
    uint32_t limit = hak_dispatch.bin_limit[bin];
    return hak_strides[bin] <= FOREIGN_LARGE ? limit : (uint32_t)hak_min(limit, hak_max(2, limit / 4));
}

static void flush_foreign(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    void *blocks = b->foreign;
    b->foreign = NULL;
    b->foreign_room = 0;
    hak_bin_drain(t, blocks);
}

void hak_bin_foreign_turn(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    uint32_t limit = foreign_limit(bin);
    hak_owned_mark_used(t, bin);
    if (!hak_next_load(b->foreign) && limit > 1) {
        b->foreign_room = (uint16_t)(limit - 2);
        return;
    }
    int saved = errno;
    tick(t, limit);
    flush_foreign(t, bin);
    hak_thread_get(); /* a trim may have asked this thread for the rest */
    if (HAK_UNLIKELY(atomic_load_explicit(&hak_background_wanted, memory_order_relaxed)))
        hak_background_start();
    errno = saved;
}

void hak_bin_flush_foreign(struct hak_thread *t)
{
    each_bin(t, flush_foreign);
}

/* A few blocks go home rather: of a class that is freed here but seldom used, and, if two threads came to use
 * blocks of one cache line by handing one over, so that they do not share it forever. */
static struct hak_chain take_foreign(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    struct hak_chain chain = {0};
    uint32_t count = b->foreign ? foreign_limit(bin) - 1u - b->foreign_room : 0;
    if (!count || (count < FOREIGN_MIN && hak_strides[bin] <= FOREIGN_LARGE))
        return chain;
    chain.head = b->foreign;
    chain.count = count;
    HAK_COUNT(t, foreign_reused, chain.count);
    b->foreign = NULL;
    b->foreign_room = 0;
    return chain;
}

/* --- refill ------------------------------------------------------------------------------------------ */

/* A drain that finds blocks saves the trip to another slab. */
static bool collect(struct hak_thread *t, struct hak_slab *slab)
{
    uint32_t n = hak_slab_collect(slab);
    HAK_COUNT(t, remote_saved, n);
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
    const struct hak_options *o = &hak_dispatch.options;
    uint32_t waiting = hak_slab_remote_count(slab);
    if (HAK_LIKELY(!waiting) || o->p0_no_drain)
        return;
    if (waiting >= o->p0_drain_thresh)
        HAK_COUNT(t, remote_early, hak_slab_collect(slab));
    else if (runs_low(slab, waiting))
        HAK_COUNT(t, remote_low_water, hak_slab_collect(slab));
}

static bool new_slab(struct hak_thread *t, unsigned bin)
{
    hak_limit_make_room(hak_slab_pages[bin] * HAK_PAGE);
    struct hak_slab *slab = hak_dispatch.by_bin[bin]->slab_acquire(t, bin);
    if (!slab)
        return false;
    hak_slab_tag(slab, t->tag);
    hak_owned_add(t, slab);
    HAK_COUNT(t, slabs_acquired, 1);
    if (hak_dispatch.options.stats_shm) /* a program that only allocates comes by no other clock */
        hak_age();
    return true;
}

/* The first slab of the bin, made to have a free block. */
static struct hak_slab *usable_slab(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    for (;;) {
        struct hak_slab *slab = b->slabs;
        if (!slab) {
            if (!new_slab(t, bin))
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

static void log_refill(const struct hak_slab *slab, uint32_t taken)
{
    bool match = slab->used + hak_slab_free_blocks(slab) == slab->carved;
    hak_log("P0 refill: slab %p, %u-byte blocks, taken %u, active %u of %u%s", (void *)slab->base, slab->stride, taken,
            slab->used, slab->capacity, match ? "" : ", MISMATCH with the blocks carved");
}

/* To count off a part of a list takes a walk, which misses the cache for each block; so a list of small blocks
 * that is not much longer than the batch is taken as it is. */
static struct hak_chain take(struct hak_thread *t, unsigned bin, uint32_t want)
{
    struct hak_slab *slab = usable_slab(t, bin);
    if (!slab)
        return (struct hak_chain){0};
    bool whole = want > 1 && slab->free && slab->free_count <= want * WHOLE_LIST && slab->stride <= WHOLE_STRIDE;
    struct hak_chain chain = whole ? hak_slab_take_list(slab) : hak_slab_take(slab, want);
    HAK_COUNT(t, refills, 1);
    HAK_COUNT(t, refill_blocks, chain.count);
    if (HAK_UNLIKELY(hak_dispatch.options.p0_log))
        log_refill(slab, chain.count);
    return chain;
}

void *hak_bin_take_one(struct hak_thread *t, unsigned bin)
{
    return take(t, bin, 1).head;
}

static uint32_t longest_interval(unsigned bin)
{
    return (uint32_t)hak_min(INTERVAL_MAX, hak_max(INTERVAL_MIN, INTERVAL_BYTES / hak_strides[bin]));
}

/* So many frees until the bin is looked at, with heartbeats on the way. */
static void set_room(struct hak_bin *b, unsigned bin, uint32_t frees)
{
    uint32_t now = (uint32_t)hak_min(frees, HAK_UNLIKELY(hak_age_pending()) ? SHORT_BEAT : BEAT);
    b->later = (uint16_t)(frees - now);
    hak_self.room[bin] = (int32_t)now;
}

/* A thread that uses a class little takes few blocks, and has few to give back when it ends. */
static void start_bin(struct hak_bin *b, unsigned bin)
{
    b->batch = (uint16_t)hak_min(FIRST_BATCH, hak_dispatch.bin_batch[bin]);
    b->interval = (uint16_t)hak_min(INTERVAL_FIRST, longest_interval(bin));
    set_room(b, bin, b->interval);
}

/* No page is touched that was not before: larger blocks of neighbouring classes share what their ups and downs
 * leave free. */
void *hak_bin_borrow(struct hak_thread *t, unsigned bin)
{
    const struct hak_slab *own = t->bins[bin].slabs;
    if (hak_strides[bin] < BORROW_MIN || (own && (hak_slab_free_blocks(own) || hak_slab_remote_count(own))))
        return NULL;
    for (unsigned other = bin + 1; other < HAK_NBINS && other <= bin + BORROW_CLASSES; other++) {
        void *block = hak_self.head[other];
        struct hak_slab *slab = t->bins[other].slabs;
        if (block)
            hak_self.head[other] = hak_next_load(block);
        else if (slab && hak_slab_free_blocks(slab))
            block = hak_slab_take(slab, 1).head;
        if (block) {
            HAK_COUNT(t, borrowed, 1);
            return block;
        }
    }
    return NULL;
}

/* Own blocks that came back go before foreign ones. Else they would gather here while their places are taken by
 * foreign ones, whose owners, missing theirs, carve new ones: a random walk that nothing turns back. */
static bool has_own_free(const struct hak_bin *b)
{
    return b->slabs && (hak_slab_free_blocks(b->slabs) || hak_slab_remote_count(b->slabs));
}

void *hak_bin_refill(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    if (!b->batch)
        start_bin(b, bin);
    b->shrinking = false;
    struct hak_chain chain = {0};
    if (!has_own_free(b))
        chain = take_foreign(t, bin);
    if (!chain.head)
        chain = take(t, bin, b->batch);
    if (!chain.head)
        return NULL;
    b->batch = (uint16_t)hak_min(b->batch * 2u, hak_dispatch.bin_batch[bin]);
    tick(t, chain.count);
    hak_self.head[bin] = hak_next_load(chain.head);
    b->refilled = true;
    return chain.head;
}

void hak_bin_prewarm(struct hak_thread *t, unsigned bin, uint32_t blocks)
{
    uint32_t have = 0;
    for (const void *block = hak_self.head[bin]; block && have < blocks; block = hak_next_load(block))
        have++;
    while (have < blocks) {
        struct hak_chain chain = take(t, bin, blocks - have);
        if (!chain.head)
            break;
        void *last = chain.head;
        while (hak_next_load(last))
            last = hak_next_load(last);
        hak_next_store(last, hak_self.head[bin]);
        hak_self.head[bin] = chain.head;
        have += chain.count;
    }
    t->bins[bin].untouched = hak_self.head[bin];
    HAK_COUNT(t, prewarmed, have);
}

/* --- looking at a bin -------------------------------------------------------------------------------- */

static void *take_bin(unsigned bin)
{
    void *blocks = hak_self.head[bin];
    hak_self.head[bin] = NULL;
    return blocks;
}

/* A thread that has no descriptor, or has ended, keeps nothing in its bins. */
static void look_without_thread(unsigned bin)
{
    hak_self.room[bin] = 0;
    hak_bin_drain(NULL, take_bin(bin));
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

/* A bin in balance is looked at less and less often; one that overflows, often. One that overflowed and was
 * not refilled since belongs to a program that frees a lot: it keeps nothing, which spares a walk. */
static void look(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    uint32_t keep = hak_dispatch.bin_limit[bin];
    void *rest = b->shrinking ? take_bin(bin) : cut(hak_self.head[bin], keep);
    HAK_COUNT(t, looks, 1);
    if (rest) {
        HAK_COUNT(t, overflows, 1);
        b->shrinking = true;
        b->interval = (uint16_t)hak_min(longest_interval(bin), hak_max(INTERVAL_MIN, keep));
        hak_bin_drain(t, rest);
    } else {
        b->interval = (uint16_t)hak_min(longest_interval(bin), hak_max(INTERVAL_MIN, b->interval * 2u));
    }
    set_room(b, bin, b->interval);
}

static HAK_NOINLINE void look_or_leave(unsigned bin)
{
    int saved = errno;
    struct hak_thread *t = hak_thread_get();
    if (HAK_UNLIKELY(!t)) {
        look_without_thread(bin);
    } else {
        hak_owned_mark_used(t, bin);
        tick(t, (uint32_t)hak_min(t->bins[bin].interval, BEAT));
        look(t, bin);
    }
    errno = saved;
}

/* A heartbeat comes often, so it takes few instructions. */
void hak_bin_look(unsigned bin)
{
    struct hak_thread *t = hak_self.thread;
    if (!t || !t->bins[bin].later) {
        look_or_leave(bin);
        return;
    }
    set_room(&t->bins[bin], bin, t->bins[bin].later);
    tick(t, BEAT);
    if (HAK_UNLIKELY(atomic_load_explicit(&hak_background_wanted, memory_order_relaxed)))
        hak_background_start();
}

/* --- everything ---------------------------------------------------------------------------------------- */

static void drain_bin(struct hak_thread *t, unsigned bin)
{
    hak_bin_drain(t, take_bin(bin));
}

static void release_idle_slabs(struct hak_thread *t, unsigned bin)
{
    struct hak_slab *next;
    for (struct hak_slab *slab = t->bins[bin].slabs; slab; slab = next) {
        next = slab->next;
        collect(t, slab);
        if (slab->used == 0)
            hak_owned_release(t, slab);
    }
}

void hak_bin_drain_all(struct hak_thread *t)
{
    each_bin(t, drain_bin);
    each_bin(t, flush_foreign); /* before the slabs are looked at: some may be this thread's own by now */
    each_bin(t, release_idle_slabs);
}

static void park(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    for (const struct hak_slab *slab = b->slabs; slab; slab = slab->next)
        t->parked_bytes += (size_t)slab->carved * slab->stride;
    b->parked = take_bin(bin);
    b->parked_room = hak_self.room[bin];
    b->refilled = false;
    hak_self.room[bin] = 0;
}

void hak_bin_park_all(struct hak_thread *t)
{
    t->parked_bytes = 0;
    each_bin(t, flush_foreign);
    each_bin(t, park);
}

static void resume(struct hak_thread *t, unsigned bin)
{
    struct hak_bin *b = &t->bins[bin];
    hak_self.head[bin] = b->parked;
    hak_self.room[bin] = b->parked_room;
    b->parked = NULL;
}

void hak_bin_resume_all(struct hak_thread *t)
{
    each_bin(t, resume);
}

static void drain_parked(struct hak_thread *t, unsigned bin)
{
    hak_bin_drain(t, t->bins[bin].parked);
}

static void abandon(struct hak_thread *t, unsigned bin)
{
    struct hak_slab *slab;
    while ((slab = t->bins[bin].slabs)) {
        hak_owned_remove(t, slab);
        if (!slab->used)
            hak_slab_untag(slab);
        if (hak_slab_disown(slab) == HAK_SLAB_PARTIAL)
            hak_dispatch.backend->publish(slab);
    }
    t->bins[bin] = (struct hak_bin){0};
}

void hak_bin_abandon_all(struct hak_thread *t)
{
    each_bin(t, drain_parked);
    each_bin(t, abandon);
}
