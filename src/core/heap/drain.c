/* SPDX-License-Identifier: MIT
 * From bins to slabs: returns a list of free blocks, of any slabs. Blocks of the heap's own slabs go to the slab's
 * bitmap, or its free list. So do those of slabs without an owner, which the thread visits. Others are grouped by slab,
 * so that one compare-and-swap returns many of them. */
#include "drain.h"

#include "core/base/log.h"
#include "core/pages/block_batch.h"
#include "core/pages/mark.h"
#include "core/parts/parts.h"
#include "owned.h"

/* All blocks are free: without tags, a second free of one takes the slow path, which checks it. A thread that has taken
 * the slab in the meantime takes the slow path once. */
static void untag(const char *base, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++)
        hak_tag_clear(base + i * HAK_PAGE);
}

/* Blocks return to a slab that the thread does not own: on its remote list; or, without a chain, they are put already,
 * and the thread leaves the slab. */
static void put_remote(struct hak_slab *slab, const struct hak_chain *chain)
{
    const char *base = slab->base; /* read before the blocks return, after which the slab may change its class */
    unsigned cls = slab->cls, pages = slab->pages;
    switch (chain ? hak_slab_remote_put(slab, *chain) : hak_slab_leave(slab)) {
    case HAK_REMOTE_PUBLISH:
        hak_parts.backend->release_slab(slab);
        break;
    case HAK_REMOTE_EMPTY:
        untag(base, pages);
        hak_parts.backend->all_back(slab, cls);
        break;
    case HAK_REMOTE_DONE:
        break;
    }
}

/* Blocks of other heaps, grouped by slab. */
#define GROUPS 16u
struct groups {
    unsigned used; /* bit i: of[i] holds blocks */
    struct group {
        struct hak_slab *slab;
        struct hak_chain chain;
    } of[GROUPS];
};

static void flush_group(struct hak_heap *heap, struct group *g)
{
    hak_count(&heap->counters.remote_blocks, g->chain.count);
    hak_count(&heap->counters.remote_batches, 1);
    put_remote(g->slab, &g->chain);
}

static void flush_groups(struct hak_heap *heap, struct groups *groups)
{
    for (; groups->used; groups->used &= groups->used - 1)
        flush_group(heap, &groups->of[__builtin_ctz(groups->used)]);
}

static void add_to_group(struct hak_heap *heap, struct groups *groups, struct hak_slab *slab, struct hak_chain chain)
{
    unsigned i = ((uintptr_t)slab / sizeof *slab) % GROUPS;
    struct group *g = &groups->of[i];
    bool used = groups->used >> i & 1;
    if (used && g->slab == slab) {
        hak_next_store(chain.tail, g->chain.head);
        g->chain.head = chain.head;
        g->chain.count += chain.count;
        return;
    }
    if (used)
        flush_group(heap, g);
    groups->used |= 1u << i;
    g->slab = slab;
    g->chain = chain;
    hak_next_store(chain.tail, NULL);
}

static bool has_tag(const struct hak_heap *heap, const void *block)
{
    uint64_t page = (uintptr_t)block >> HAK_PAGE_LG;
    return (page ^ hak_tag_load(page) ^ heap->tag) < HAK_NCLASSES;
}

#define BURST_STRIDE 1024u /* of larger blocks the 16 that a bin may hold are too much */

/* In a long burst of frees, the thread's next frees of the slab's blocks take the fast path, into its bin, which keeps
 * few of them. */
static void expect_more(struct hak_heap *heap, const struct hak_slab *slab, const void *block)
{
    struct hak_bin *b = &heap->bins[slab->cls];
    if (b->flushes < HAK_BURST || slab->stride > BURST_STRIDE || has_tag(heap, block))
        return;
    hak_slab_tag(slab, heap->tag);
    b->overflows = HAK_BURST;
}

/* Consecutive blocks of a list often belong to one slab; blocks of one page always do. NULL lies in no slab. */
static bool same_page(const void *a, const void *b)
{
    return ((uintptr_t)a ^ (uintptr_t)b) >> HAK_PAGE_LG == 0;
}

/* A FULL slab has no owner: its last owner reclaims it when it frees one of its blocks, unless it has enough slabs.
 */
static bool reclaim(struct hak_heap *heap, struct hak_slab *slab, const void *block)
{
    if (!has_tag(heap, block) || HAK_LOAD_RELAXED(&slab->last_owner) != hak_slab_owner_hint(heap) ||
        !hak_owned_has_room(heap, slab) || !hak_slab_reclaim(slab, heap))
        return false;
    hak_owned_add(heap, slab);
    hak_count(&heap->counters.reclaimed, 1);
    return true;
}

/* The bin keeps one slab, so that a single block can be allocated and freed cheaply. */
static HAK_NOINLINE void release_spare(struct hak_heap *heap, struct hak_slab *slab)
{
    struct hak_bin *b = &heap->bins[slab->cls];
    if (b->slabs != slab || slab->next)
        hak_owned_release(heap, slab);
}

/* What is still to be drained: a list linked through the blocks, or an array of pointers to them. `array` is a
 * compile-time constant, so each of the two has its own code. */
struct rest {
    void *first;                  /* NULL: nothing is left */
    void *const *at, *const *end; /* with `array`, the pointers after `first` */
};

HAK_INLINE void skip_first(struct rest *rest, const bool array)
{
    if (array)
        rest->first = rest->at < rest->end ? *rest->at++ : NULL;
    else
        rest->first = hak_next_load(rest->first);
}

/* How many slots, at most `most`, continue from `block` in steps of `step` bytes. */
HAK_INLINE uint32_t run_length(void *const *slots, size_t most, const char *block, ptrdiff_t step)
{
    uint32_t n = 0;
    while (n < most && slots[n] == (block += step))
        n++;
    return n;
}

/* Marks a block, and the blocks in the slots whose bits adjoin its bit in one word, upwards or downwards. Returns the
 * number of those slots. */
static HAK_NOINLINE uint32_t mark_run(struct hak_slab *slab, const void *block, ptrdiff_t step, void *const *slots,
                                      size_t most)
{
    uint64_t place = hak_slab_place_of(slab, block), *word;
    uint32_t first = (uint32_t)(place >> 32), below = first % 64;
    size_t room = step > 0 ? hak_min(63 - below, slab->carved - 1 - first) : below; /* beyond it another slab may lie */
    uint32_t n = run_length(slots, hak_min(most, room), block, step);
    uint32_t lowest = step > 0 ? first : first - n;
    uint64_t bits = (((uint64_t)2 << n) - 1) << lowest % 64;
    word = &slab->bitmap[first / 64];
    if (HAK_UNLIKELY(lowest + n >= slab->carved || !hak_slab_is_start(slab, block, place) || *word & bits)) {
        hak_slab_mark(slab, block); /* this call stops the process, or that for one of the next blocks */
        return 0;
    }
    *word |= bits;
    return n;
}

/* Does nothing, except in hardened builds, which check that the block is as free left it. */
HAK_INLINE void check_free_block(const struct hak_slab *slab, const void *block, const bool array)
{
    if (array)
        hak_mark_check_whole(block, slab->cls);
    else
        hak_mark_check_linked(block, slab->cls);
}

/* Marks the first blocks of an array, as far as they belong to this slab. Programs often free adjacent blocks in a
 * row. */
HAK_INLINE uint32_t mark_array(struct hak_slab *slab, struct rest *rest)
{
    uint32_t n = 0;
    bool more;
    do {
        const char *block = rest->first;
        skip_first(rest, true);
        n++;
        ptrdiff_t step = (const char *)rest->first - block, stride = slab->stride;
        more = same_page(block, rest->first);
        if (!HAK_BLOCKS_ARE_MARKED && more && (step == stride || step == -stride)) {
            void *const *next = rest->at - 1;
            uint32_t row = mark_run(slab, block, step, next, (size_t)(rest->end - next));
            n += row;
            rest->at = next + row;
            skip_first(rest, true);
            more = same_page(block, rest->first);
        } else {
            hak_slab_mark(slab, block);
            check_free_block(slab, block, true);
        }
    } while (more);
    return n;
}

/* The same for a list. */
HAK_INLINE uint32_t mark_list(struct hak_slab *slab, struct rest *rest)
{
    uint32_t n = 0;
    void *last;
    do {
        last = rest->first;
        skip_first(rest, false);
        hak_slab_mark(slab, last);
        check_free_block(slab, last, false);
        n++;
    } while (same_page(last, rest->first));
    return n;
}

/* The same, onto the slab's free list. */
HAK_INLINE uint32_t push_own(struct hak_slab *slab, struct rest *rest, const bool array)
{
    uint32_t n = 0;
    void *last;
    do {
        last = rest->first;
        skip_first(rest, array);
        check_free_block(slab, last, array);
        hak_slab_push(slab, last);
        hak_block_batch_close(last, 0, 0);
        if (HAK_UNLIKELY(++n > slab->used)) /* checked in the loop, since a list that is a circle has no end */
            hak_slab_fail_put(slab, last);
    } while (same_page(last, rest->first));
    return n;
}

/* Puts the first blocks, which belong to this slab of the heap, into its bitmap or on its free list. */
HAK_INLINE void put_own(struct hak_heap *heap, struct hak_slab *slab, struct rest *rest, const bool array)
{
    const void *first = rest->first;
    uint32_t n, *count = &slab->free_count;
    if (HAK_LIKELY(hak_slab_has_bitmap(slab))) {
        n = array ? mark_array(slab, rest) : mark_list(slab, rest);
        count = &slab->marked;
    } else {
        n = push_own(slab, rest, array);
    }
    if (HAK_UNLIKELY(slab->used < n))
        hak_slab_fail_put(slab, first);
    slab->used -= n;
    hak_slab_count(slab, -(uint64_t)n);
    *count += n;
    hak_count(&heap->counters.drained_blocks, n);
}

/* The number of a block. The slab's owner may be carving it now, so this cannot check how far it is carved. */
HAK_INLINE uint32_t number_of_block(const struct hak_slab *slab, const void *block, const bool array)
{
    uint32_t number = HAK_LIKELY(hak_class_starts_at(slab->cls, block))
                          ? hak_class_number_of(slab->cls, block)
                          : hak_slab_check_start(slab, block, "free"); /* the slab may be longer than a page */
    check_free_block(slab, block, array);
    return number;
}

/* Puts the first blocks, which belong to a slab of another heap, into a group. */
HAK_INLINE void put_others(struct hak_heap *heap, struct groups *groups, struct hak_slab *slab, struct rest *rest,
                           const bool array)
{
    void *last = rest->first;
    struct hak_batcher batcher = hak_batcher_start(slab, last);
    number_of_block(slab, last, array);
    while (skip_first(rest, array), same_page(last, rest->first)) {
        if (array && HAK_UNLIKELY(rest->first == last))
            hak_slab_fail_free(slab, last);
        last = rest->first;
        hak_batcher_add(&batcher, last, number_of_block(slab, last, array), !array);
        if (HAK_UNLIKELY(batcher.count > slab->capacity)) /* the list is a circle: a block is on it twice */
            hak_slab_fail_put(slab, last);
    }
    struct hak_chain chain = hak_batcher_end(&batcher);
    if (heap)
        add_to_group(heap, groups, slab, chain);
    else
        put_remote(slab, &chain);
}

/* Whether blocks of the slab can be allocated. A block freed twice may lead to another descriptor, whose class and
 * stride mean nothing. */
static bool is_slab(const struct hak_slab *slab)
{
    enum hak_slab_state state = hak_slab_state(slab);
    return state >= HAK_SLAB_ACTIVE && state <= HAK_SLAB_PARTIAL;
}

static _Noreturn HAK_COLD void fail_drained(const void *block)
{
    hak_log_fatal(
        "double free or corruption: a list of free blocks leads to %p, which is no block of ours; one was freed "
        "twice, or written to after free",
        block);
}

HAK_INLINE void drain_rest(struct hak_heap *heap, struct rest rest, const bool array)
{
    struct groups groups;
    groups.used = 0;
    while (rest.first) {
        struct hak_slab *slab = hak_space_slab_of_block(rest.first);
        bool own = slab && heap && HAK_LOAD_RELAXED(&slab->owner) == heap;
        if (HAK_UNLIKELY(!own)) {
            if (!slab || !is_slab(slab))
                fail_drained(rest.first);
            own = heap && reclaim(heap, slab, rest.first);
        }
        if (HAK_HEADER_LIMIT) /* a wrong byte that names another class brought the block to a bin of others */
            hak_slab_check_header(slab, rest.first);
        if (HAK_LIKELY(own)) {
            put_own(heap, slab, &rest, array);
            if (HAK_UNLIKELY(slab->used == 0))
                release_spare(heap, slab);
        } else if (heap && hak_slab_visit(slab)) {
            expect_more(heap, slab, rest.first);
            put_own(heap, slab, &rest, array);
            put_remote(slab, NULL);
        } else {
            put_others(heap, &groups, slab, &rest, array);
        }
    }
    if (heap)
        flush_groups(heap, &groups);
}

void hak_drain(struct hak_heap *heap, void *blocks)
{
    drain_rest(heap, (struct rest){.first = blocks}, false);
}

#if HAK_CACHE_SLOTS
void hak_drain_array(struct hak_heap *heap, void *const *blocks, uint32_t count)
{
    struct rest rest = {.at = blocks, .end = blocks + count};
    skip_first(&rest, true);
    drain_rest(heap, rest, true);
}
#endif
