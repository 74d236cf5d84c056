/* SPDX-License-Identifier: MIT
 * How the owner takes blocks out of a slab: off its free list, out of its free bitmap, or carved. See slab.h. */
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/os/meta.h"
#include "slab.h"
#include "tags.h"

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 by the golden ratio: spreads a count over all bits */
#define BITMAP_WORDS_MAX ((HAK_PAGE >> 4 >> 6) + HAK_HARDENED) /* the last one counts draws */

/* Block 0 of a slab has no header byte; the tag tells the class of a page-aligned block (cache.h). */
static void write_headers(const struct hak_slab *slab, uint32_t from, uint32_t to)
{
    if (!hak_class_has_header(slab->cls) || !hak_tag_in_header_zone(slab->base))
        return;
    for (uint32_t i = hak_max(from, 1); i < to; i++)
        slab->base[(size_t)i * slab->stride - 1] = (char)hak_header_byte(slab->cls);
}

static _Noreturn HAK_COLD void fail_free_list(const struct hak_slab *slab, const void *block)
{
    hak_log_fatal("double free or corruption: slab %p of %u-byte blocks has more on its list of free blocks than came "
                  "back; one is %p",
                  (void *)slab->base, slab->stride, block);
}

/* The next block on the list. Hardened builds check the block first. */
static void *next_on_list(const struct hak_slab *slab, const void *block)
{
    if (HAK_HARDENED) {
        hak_slab_check_block(slab, block, "free");
        hak_mark_check_linked(block, slab->cls);
    }
    return hak_next_load(block);
}

static struct hak_chain take_from_list(struct hak_slab *slab, uint32_t want)
{
    struct hak_chain chain = {slab->free, slab->free, 1};
    void *next;
    while ((next = next_on_list(slab, chain.tail)) && chain.count < want) {
        chain.tail = next;
        chain.count++;
    }
    slab->free = next;
    if (HAK_UNLIKELY(chain.count > slab->free_count))
        fail_free_list(slab, chain.tail);
    slab->free_count -= chain.count;
    return chain;
}

/* A slab that never gets a block back has no bitmap. A bitmap from its use for another class may be too small now: then
 * the slab gets one of the largest size, so that this happens once. */
bool hak_slab_make_bitmap(struct hak_slab *slab)
{
    uint32_t words = (slab->capacity + 63) / 64 + HAK_HARDENED;
    if (slab->bitmap_words < words) {
        size_t room = slab->bitmap_words ? BITMAP_WORDS_MAX : hak_align_up(words, HAK_CACHELINE / sizeof *slab->bitmap);
        uint64_t *bitmap = hak_meta_alloc(room * sizeof *bitmap);
        if (!bitmap)
            return false;
        slab->bitmap = bitmap;
        slab->bitmap_words = (uint16_t)room;
    }
    hak_fill(slab->bitmap, 0, (words - HAK_HARDENED) * sizeof *slab->bitmap);
    slab->cursor = 0;
    slab->bitmap_divisor = (uint32_t)(((uint64_t)1 << 32) / slab->stride) + !hak_is_pow2(slab->stride);
    return true;
}

/* Carves blocks in address order. Returns the first one. */
HAK_INLINE char *carve_run(struct hak_slab *slab, uint32_t want, uint32_t *count)
{
    size_t first = (size_t)slab->carved * slab->stride;
    uint32_t fitting = (uint32_t)((hak_slab_next_end(slab) - first) / slab->stride);
    uint32_t n = (uint32_t)hak_min(hak_min(want, fitting), slab->capacity - slab->carved);
    write_headers(slab, slab->carved, slab->carved + n);
    slab->carved += n;
    *count = n;
    return slab->base + first;
}

#if HAK_HARDENED
/* A random number below n. */
static uint32_t roll(uint64_t *dice, uint32_t n)
{
    *dice =
        *dice * 0xd1342543de82ef95u + 1; /* Steele, Vigna: Computationally easy, spectrally good multipliers, 2022 */
    return (uint32_t)((*dice >> 32) * n >> 32);
}

/* Takes up to `want` blocks, at random, from the next word of the bitmap that has any (Fisher-Yates shuffle). */
static uint32_t draw(struct hak_slab *slab, uint32_t want, void **out)
{
    uint8_t bits[64];
    uint32_t n = 0, taken = 0, words = (slab->capacity + 63) / 64;
    while (!slab->bitmap[slab->cursor])
        slab->cursor = (uint16_t)(slab->cursor + 1u < words ? slab->cursor + 1u : 0);
    uint64_t *word = &slab->bitmap[slab->cursor];
    for (uint64_t rest = *word; rest; rest &= rest - 1)
        bits[n++] = (uint8_t)__builtin_ctzll(rest);
    uint64_t dice = hak_secret_mix((uintptr_t)word ^ slab->bitmap[slab->bitmap_words - 1]++ * GOLDEN);
    for (; taken < n && taken < want; taken++) {
        uint32_t i = taken + roll(&dice, n - taken), bit = bits[i];
        bits[i] = bits[taken];
        *word -= (uint64_t)1 << bit;
        out[taken] = slab->base + ((size_t)slab->cursor * 64 + bit) * slab->stride;
        hak_mark_check_linked(out[taken], slab->cls);
    }
    slab->marked -= taken;
    return taken;
}

/* New blocks go to the bitmap first. Without memory for one, they are handed out in address order. */
static uint32_t take_unlisted(struct hak_slab *slab, uint32_t want, void **out)
{
    uint32_t n;
    if (HAK_UNLIKELY(!hak_slab_has_bitmap(slab))) {
        char *block = carve_run(slab, want, &n);
        for (uint32_t i = 0; i < n; i++, block += slab->stride)
            out[i] = block;
        return n;
    }
    if (!slab->marked) {
        uint32_t first = slab->carved;
        carve_run(slab, UINT32_MAX, &n);
        for (uint32_t i = first; i < first + n; i++) {
            slab->bitmap[i / 64] |= (uint64_t)1 << i % 64;
            hak_mark_renew(slab->base + (size_t)i * slab->stride, slab->cls); /* so free rejects the block */
        }
        slab->marked = n;
    }
    for (n = 0; n < want && slab->marked;)
        n += draw(slab, want - n, out + n);
    return n;
}

static struct hak_chain take_chain(struct hak_slab *slab, uint32_t want)
{
    void *out[64];
    struct hak_chain chain = {0};
    do {
        uint32_t n = take_unlisted(slab, (uint32_t)hak_min(want - chain.count, 64), out);
        for (uint32_t i = 0; i < n; i++, chain.count++) {
            hak_mark_renew(out[i], slab->cls);
            if (chain.tail)
                hak_next_store(chain.tail, out[i]);
            else
                chain.head = out[i];
            chain.tail = out[i];
        }
    } while (chain.count < want && slab->marked);
    return chain;
}
#else
/* Takes blocks in address order and links them, or stores them in the slots before `end`, the first one last. Returns
 * the last block. */
HAK_INLINE void *unmark(struct hak_slab *slab, uint32_t want, void *first_link, void **end)
{
    void *last = first_link;
    uint32_t n = 0, i = slab->cursor, words = (slab->capacity + 63) / 64;
    for (;;) {
        char *first = slab->base + (size_t)i * 64 * slab->stride;
        uint64_t word = slab->bitmap[i];
        if (end && word == ~(uint64_t)0 && want - n >= 64) { /* often adjacent blocks were freed */
            for (; word; word >>= 1, first += slab->stride)
                *--end = first;
            n += 64;
        }
        for (; word && n < want; word &= word - 1, n++) {
            char *block = first + (size_t)__builtin_ctzll(word) * slab->stride;
            if (end)
                *--end = block;
            else
                hak_next_store(last, block);
            last = block;
        }
        slab->bitmap[i] = word;
        if (n == want)
            break;
        i = i + 1 < words ? i + 1 : 0;
    }
    slab->cursor = (uint16_t)i;
    slab->marked -= n;
    slab->sparse = 0;
    slab->taken_at = hak_slab_time() % HAK_SLAB_TIMES;
    return last;
}

static struct hak_chain take_marked(struct hak_slab *slab, uint32_t want)
{
    void *head; /* links are stored through it, as a link is the first word of a block */
    uint32_t n = (uint32_t)hak_min(want, slab->marked);
    void *last = unmark(slab, n, &head, NULL);
    return (struct hak_chain){hak_next_load(&head), last, n};
}

static struct hak_chain carve(struct hak_slab *slab, uint32_t want)
{
    uint32_t n;
    char *block = carve_run(slab, want, &n);
    struct hak_chain chain = {block, block, n};
    for (uint32_t i = 1; i < n; i++, chain.tail = block) {
        block += slab->stride;
        hak_next_store(chain.tail, block);
    }
    hak_next_store(chain.tail, NULL);
    return chain;
}

static struct hak_chain take_chain(struct hak_slab *slab, uint32_t want)
{
    return slab->marked ? take_marked(slab, want) : carve(slab, want);
}

#if HAK_CACHE_SLOTS
static uint32_t take_unlisted(struct hak_slab *slab, uint32_t want, void **slots)
{
    uint32_t n = (uint32_t)hak_min(want, slab->marked);
    if (n) {
        unmark(slab, n, NULL, slots + n);
        return n;
    }
    char *block = carve_run(slab, want, &n);
    for (uint32_t i = n; i--; block += slab->stride)
        slots[i] = block;
    return n;
}
#endif
#endif

/* Blocks of the slab become allocated. */
static void take_out(struct hak_slab *slab, uint32_t blocks)
{
    slab->used += blocks;
    hak_slab_count(slab, blocks);
}

struct hak_chain hak_slab_take(struct hak_slab *slab, uint32_t want)
{
    HAK_ASSERT(want);
    struct hak_chain chain = slab->free ? take_from_list(slab, want) : take_chain(slab, want);
    hak_next_store(chain.tail, NULL);
    take_out(slab, chain.count);
    HAK_ASSERT(slab->used + hak_slab_free_blocks(slab) == slab->carved);
    return chain;
}

struct hak_chain hak_slab_take_list(struct hak_slab *slab)
{
    struct hak_chain chain = {slab->free, NULL, slab->free_count};
    take_out(slab, chain.count);
    slab->free = NULL;
    slab->free_count = 0;
    HAK_ASSERT(slab->used + slab->marked == slab->carved);
    return chain;
}

#if HAK_CACHE_SLOTS
static uint32_t chain_to_slots(const struct hak_slab *slab, struct hak_chain chain, void **slots)
{
    void *block = chain.head;
    for (uint32_t i = chain.count; i--; block = hak_next_load(block)) {
        if (HAK_UNLIKELY(!block)) /* the chain's last block occurs twice in it */
            fail_free_list(slab, chain.tail);
        slots[i] = block;
    }
    return chain.count;
}

/* The blocks of a list are known only by reading them. */
uint32_t hak_slab_take_to_slots(struct hak_slab *slab, uint32_t want, void **slots)
{
    HAK_ASSERT(want);
    if (slab->free)
        return chain_to_slots(slab, hak_slab_take(slab, want), slots);
    uint32_t n = take_unlisted(slab, want, slots);
    take_out(slab, n);
    HAK_ASSERT(slab->used + hak_slab_free_blocks(slab) == slab->carved);
    return n;
}
#endif
