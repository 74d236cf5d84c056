/* SPDX-License-Identifier: MIT
 * The states of a slab; slab.h has the diagram. The word of a slab, which changes by compare-and-swap, holds
 *   bits 0..2 state | 3 a thread visits the slab | 4..17 remote blocks | 18..31 FULL, PARTIAL: blocks allocated |
 *   32..63 first remote block / 16
 * A remote free publishes the links it wrote with a release; the thread that takes the list acquires them. */
#include "slab.h"

#include "core/base/log.h"
#include "core/base/work.h"
#include "tags.h"

#define ALLOCATED_SHIFT 18
#define FIRST_SHIFT 32
#define UNIT_LG 4
#define VISITED 8u
#define ALL_BUT_LIST ((uint64_t)HAK_SLAB_COUNT_MASK << ALLOCATED_SHIFT | VISITED | HAK_SLAB_STATE_MASK)

static const char state_names[][8] = {"unused", "active", "full", "partial", "empty", "span", "arena"};

const char *hak_slab_state_name(enum hak_slab_state state)
{
    return state_names[state];
}

static enum hak_slab_state state_of(uint64_t word)
{
    return (enum hak_slab_state)(word & HAK_SLAB_STATE_MASK);
}

static uint32_t count_of(uint64_t word)
{
    return (uint32_t)(word >> HAK_SLAB_COUNT_SHIFT) & HAK_SLAB_COUNT_MASK;
}

static uint32_t allocated_of(uint64_t word)
{
    return (uint32_t)(word >> ALLOCATED_SHIFT) & HAK_SLAB_COUNT_MASK;
}

static void *first_of(const struct hak_slab *slab, uint64_t word)
{
    return slab->base + ((word >> FIRST_SHIFT) << UNIT_LG);
}

/* A word without remote blocks; `allocated` is used only in states without an owner, and is zero in others. */
static uint64_t make_word(enum hak_slab_state state, uint32_t allocated)
{
    return (uint64_t)state | (uint64_t)allocated << ALLOCATED_SHIFT;
}

static uint64_t add_remote(const struct hak_slab *slab, uint64_t word, const void *first, uint32_t count)
{
    uint64_t offset = (uint64_t)((const char *)first - slab->base) >> UNIT_LG;
    return (word & (((uint64_t)1 << FIRST_SHIFT) - 1)) + ((uint64_t)count << HAK_SLAB_COUNT_SHIFT) +
           (offset << FIRST_SHIFT);
}

/* Release: publishes plain fields and links. Acquire: sees those of the thread that changed the word before. */
static bool swap_word(struct hak_slab *slab, uint64_t *expected, uint64_t desired)
{
    return HAK_CAS_ACQ_REL(&slab->word, expected, desired);
}

void hak_slab_tag(const struct hak_slab *slab, uint64_t owner_tag)
{
    for (unsigned i = 0; i < slab->pages; i++)
        hak_tag_set(slab->base + i * HAK_PAGE, owner_tag, slab->cls);
}

void hak_slab_untag(const struct hak_slab *slab)
{
    for (unsigned i = 0; i < slab->pages; i++)
        hak_tag_clear(slab->base + i * HAK_PAGE);
}

/* A block's first bytes were written when it was carved or freed. */
static size_t touched_before(const struct hak_slab *slab)
{
    return hak_max(slab->touched, slab->stride <= HAK_SYSTEM_PAGE ? (size_t)slab->carved * slab->stride : 0);
}

void hak_slab_lay_out(struct hak_slab *slab, unsigned cls)
{
    slab->touched = hak_slab_state(slab) == HAK_SLAB_EMPTY ? (uint32_t)touched_before(slab) : 0;
    slab->sparse = 0;
    slab->taken_at = hak_slab_time() % HAK_SLAB_TIMES;
    slab->cls = (uint8_t)cls;
    slab->stride = hak_strides[cls];
    slab->capacity = (uint32_t)(slab->pages * HAK_PAGE / slab->stride);
    slab->carved = slab->used = slab->free_count = slab->marked = slab->bitmap_divisor = 0;
    slab->free = NULL;
    slab->since_ms = HAK_LOAD_RELAXED(&hak_awake_ms);
}

void hak_slab_format(struct hak_slab *slab, unsigned cls, struct hak_heap *owner)
{
    enum hak_slab_state from = hak_slab_state(slab);
    hak_slab_lay_out(slab, cls);
    HAK_STORE_RELAXED(&slab->owner, owner);
    hak_count_transition(from, HAK_SLAB_ACTIVE);
    HAK_STORE_RELEASE(&slab->word, make_word(HAK_SLAB_ACTIVE, 0));
}

void hak_slab_fail_put(const struct hak_slab *slab, const void *block)
{
    hak_log_fatal("double free: slab %p of %u-byte blocks got back more blocks than it gave out; one is %p",
                  (void *)slab->base, slab->stride, block);
}

void hak_slab_fail_free(const struct hak_slab *slab, const void *block)
{
    hak_slab_check_block(slab, block, "free");
    hak_log_fatal("double free: block %p of slab %p (%u-byte blocks) is free already", block, (void *)slab->base,
                  slab->stride);
}

/* The program may have freed a block twice, got it again, and written to it. */
void *hak_slab_next(const struct hak_slab *slab, const void *block)
{
    char *next = hak_next_load(block);
    if (HAK_UNLIKELY(next && (size_t)(next - slab->base) >= slab->pages * HAK_PAGE))
        hak_log_fatal("double free or corruption: block %p of slab %p (%u-byte blocks) is free, and was written to",
                      block, (void *)slab->base, slab->stride);
    return next;
}

void hak_slab_put(struct hak_slab *slab, struct hak_chain chain)
{
    if (HAK_UNLIKELY(chain.count > slab->used))
        hak_slab_fail_put(slab, chain.head);
    if (slab->free)
        hak_next_store(chain.tail, slab->free);
    slab->free = chain.head;
    slab->free_count += chain.count;
    slab->used -= chain.count;
}

static _Noreturn HAK_COLD void fail_remote(const struct hak_slab *slab, const void *block, uint64_t word)
{
    hak_log_fatal("double free or corruption: block %p of slab %p (%u-byte blocks, %s)", block, (void *)slab->base,
                  slab->stride, state_names[state_of(word) % HAK_SLAB_NSTATES]);
}

/* If two chains hold the same block, the list is a circle, or ends early. For block batches, hak_block_batches_open
 * detects the latter. */
static void *last_of(const struct hak_slab *slab, uint64_t word)
{
    void *last = NULL, *block = first_of(slab, word);
    uint32_t n = 0;
    for (; block && n < count_of(word); n++, block = hak_slab_next(slab, last)) {
        hak_slab_check_block(slab, block, "free"); /* before this block is read, and the last one written */
        hak_mark_check_linked(block, slab->cls);
        last = block;
    }
    if (HAK_UNLIKELY(block || (!HAK_BLOCK_BATCHES && n < count_of(word))))
        fail_remote(slab, last, word);
    return last;
}

static uint32_t put_remote_list(struct hak_slab *slab, uint64_t word)
{
    if (!count_of(word))
        return 0;
    /* Without free blocks the list simply becomes the free list, without a walk. */
    struct hak_chain chain = {first_of(slab, word), slab->free ? last_of(slab, word) : NULL, count_of(word)};
    hak_slab_put(slab, chain);
    return chain.count;
}

uint32_t hak_slab_collect(struct hak_slab *slab)
{
    uint64_t word = HAK_LOAD_ACQUIRE(&slab->word);
    if (!count_of(word))
        return 0;
    while (!swap_word(slab, &word, word & ALL_BUT_LIST))
        ;
    return put_remote_list(slab, word);
}

/* Gives up an ACTIVE slab without remote blocks; false, and still owned, if some came meanwhile. */
static bool disown_as(struct hak_slab *slab, enum hak_slab_state state)
{
    struct hak_heap *owner = HAK_LOAD_RELAXED(&slab->owner);
    uint64_t word = make_word(HAK_SLAB_ACTIVE, 0);
    HAK_STORE_RELAXED(&slab->last_owner, hak_slab_owner_hint(owner));
    HAK_STORE_RELAXED(&slab->owner, NULL);
    if (!swap_word(slab, &word, make_word(state, slab->used))) {
        HAK_STORE_RELAXED(&slab->owner, owner);
        return false;
    }
    hak_count_transition(HAK_SLAB_ACTIVE, state);
    return true;
}

bool hak_slab_retire(struct hak_slab *slab)
{
    HAK_ASSERT(!hak_slab_has_free(slab));
    return disown_as(slab, HAK_SLAB_FULL);
}

enum hak_slab_state hak_slab_disown(struct hak_slab *slab)
{
    for (;;) {
        hak_slab_collect(slab);
        enum hak_slab_state state = hak_slab_has_free(slab) ? HAK_SLAB_PARTIAL : HAK_SLAB_FULL;
        if (disown_as(slab, state))
            return state; /* from here on another thread may own the slab */
    }
}

/* The slab's pages may serve another class or a span next, with the content that they have now. */
static void wipe(const struct hak_slab *slab)
{
    for (uint32_t i = 0; HAK_HARDENED && i < slab->carved; i++) {
        uintptr_t *words = (uintptr_t *)(void *)(slab->base + (size_t)i * slab->stride);
        if (words[0] | words[1]) /* otherwise the page may never have been touched */
            hak_mark_clear(words, slab->cls);
    }
}

void hak_slab_empty(struct hak_slab *slab)
{
    HAK_CHECK(slab->used == 0);
    wipe(slab);
    hak_slab_untag(slab);
    enum hak_slab_state from = hak_slab_state(slab);
    HAK_STORE_RELAXED(&slab->owner, NULL);
    hak_count_transition(from, HAK_SLAB_EMPTY);
    HAK_STORE_RELEASE(&slab->word, make_word(HAK_SLAB_EMPTY, 0));
}

bool hak_slab_reclaim(struct hak_slab *slab, struct hak_heap *owner)
{
    uint64_t word = HAK_LOAD_ACQUIRE(&slab->word);
    if (word != make_word(HAK_SLAB_FULL, allocated_of(word)) || !swap_word(slab, &word, make_word(HAK_SLAB_ACTIVE, 0)))
        return false;
    HAK_STORE_RELAXED(&slab->owner, owner);
    hak_count_transition(HAK_SLAB_FULL, HAK_SLAB_ACTIVE);
    return true;
}

bool hak_slab_adopt(struct hak_slab *slab, struct hak_heap *owner)
{
    uint64_t word = HAK_LOAD_ACQUIRE(&slab->word);
    enum hak_slab_state to;
    do {
        HAK_ASSERT(state_of(word) == HAK_SLAB_PARTIAL);
        to = word & VISITED ? HAK_SLAB_FULL : HAK_SLAB_ACTIVE;
    } while (!swap_word(slab, &word, to == HAK_SLAB_FULL ? word - HAK_SLAB_PARTIAL + to : make_word(to, 0)));
    hak_count_transition(HAK_SLAB_PARTIAL, to);
    if (HAK_UNLIKELY(to == HAK_SLAB_FULL))
        return false;
    HAK_STORE_RELAXED(&slab->owner, owner);
    put_remote_list(slab, word);
    return true;
}

/* No visit if all blocks are on the remote list: what comes then was freed twice. */
bool hak_slab_visit(struct hak_slab *slab)
{
    uint64_t word = HAK_LOAD_ACQUIRE(&slab->word);
    enum hak_slab_state state = state_of(word);
    return (state == HAK_SLAB_FULL || state == HAK_SLAB_PARTIAL) && !(word & VISITED) &&
           count_of(word) < allocated_of(word) && swap_word(slab, &word, word | VISITED);
}

/* Until here the blocks that the visitor put count as allocated, so no other thread sees all blocks back. */
enum hak_remote hak_slab_leave(struct hak_slab *slab)
{
    uint64_t word = HAK_LOAD_RELAXED(&slab->word), wanted;
    uint32_t used = slab->used;
    do {
        wanted = (word & ~ALL_BUT_LIST) | make_word(HAK_SLAB_PARTIAL, used);
    } while (!swap_word(slab, &word, wanted));
    if (state_of(word) == HAK_SLAB_FULL) {
        hak_count_transition(HAK_SLAB_FULL, HAK_SLAB_PARTIAL);
        return HAK_REMOTE_PUBLISH;
    }
    return count_of(wanted) == used ? HAK_REMOTE_EMPTY : HAK_REMOTE_DONE;
}

static bool is_all_back(uint64_t word)
{
    return state_of(word) == HAK_SLAB_PARTIAL && count_of(word) == allocated_of(word);
}

bool hak_slab_all_back(const struct hak_slab *slab)
{
    return is_all_back(HAK_LOAD_ACQUIRE(&slab->word));
}

bool hak_slab_all_back_by_now(struct hak_slab *slab)
{
    return is_all_back(HAK_OR_RELEASE(&slab->word, 0));
}

enum hak_remote hak_slab_remote_put(struct hak_slab *slab, struct hak_chain chain)
{
    uint64_t word = HAK_LOAD_ACQUIRE(&slab->word), wanted;
    uint64_t usable = hak_class_usable(slab->cls); /* read before the blocks return */
    enum hak_slab_state from, to;
    do {
        from = state_of(word);
        uint32_t most = from == HAK_SLAB_ACTIVE ? slab->capacity : allocated_of(word);
        if (HAK_UNLIKELY(from < HAK_SLAB_ACTIVE || from > HAK_SLAB_PARTIAL || count_of(word) + chain.count > most))
            fail_remote(slab, chain.head, word);
        if (HAK_UNLIKELY(count_of(word) && first_of(slab, word) == chain.tail)) /* one block was freed twice in a row */
            hak_slab_fail_free(slab, chain.tail);
        to = from == HAK_SLAB_FULL ? HAK_SLAB_PARTIAL : from;
        hak_next_store(chain.tail, count_of(word) ? first_of(slab, word) : NULL);
        wanted = add_remote(slab, word - from + to, chain.head, chain.count);
    } while (!swap_word(slab, &word, wanted));
    hak_count_allocated(-(uint64_t)chain.count * usable);
    if (from == HAK_SLAB_FULL) {
        hak_count_transition(from, to);
        return HAK_REMOTE_PUBLISH;
    }
    return to == HAK_SLAB_PARTIAL && count_of(wanted) == allocated_of(wanted) ? HAK_REMOTE_EMPTY : HAK_REMOTE_DONE;
}

/* The owner may be carving. Any value seen here will do: a block that was handed out was carved before. */
static HAK_SNAPSHOT uint32_t carved_of(const struct hak_slab *slab)
{
    return *(const volatile uint32_t *)&slab->carved; /* volatile: read in here, not by the caller */
}

uint32_t hak_slab_check_start(const struct hak_slab *slab, const void *block, const char *call)
{
    size_t offset = (size_t)((const char *)block - slab->base);
    if (HAK_UNLIKELY(offset % slab->stride || offset / slab->stride >= slab->capacity))
        hak_log_fatal("invalid %s: %p is not the start of a block of slab %p (%u-byte blocks)", call, block,
                      (void *)slab->base, slab->stride);
    return (uint32_t)(offset / slab->stride);
}

void hak_slab_check_block(const struct hak_slab *slab, const void *block, const char *call)
{
    if (HAK_UNLIKELY(hak_slab_check_start(slab, block, call) >= carved_of(slab)))
        hak_log_fatal("invalid %s: block %p of slab %p (%u-byte blocks) was never handed out", call, block,
                      (void *)slab->base, slab->stride);
}

void hak_slab_check_header(const struct hak_slab *slab, const void *p)
{
    if (!hak_class_has_header(slab->cls) || !hak_tag_in_header_zone(p) || p == slab->base)
        return;
    unsigned byte = ((const uint8_t *)p)[-1];
    if (HAK_UNLIKELY(byte != hak_header_byte(slab->cls)))
        hak_log_fatal("corrupted header: the byte before block %p is 0x%02x, not 0x%02x: the block before it, %p of "
                      "%u bytes, was written beyond its end",
                      p, byte, hak_header_byte(slab->cls), (void *)((uintptr_t)p - slab->stride), slab->stride - 1);
}
