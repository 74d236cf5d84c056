/* SPDX-License-Identifier: MIT
 * See block_batch.h. */
#include "block_batch.h"

#include "core/base/log.h"

static _Noreturn HAK_COLD void fail_bundle(const struct hak_slab *slab, const void *block)
{
    hak_log_fatal(
        "double free or corruption: slab %p of %u-byte blocks has other blocks or another number of blocks on "
        "its list than came back; one is %p",
        (void *)slab->base, slab->stride, block);
}

static uint32_t named_by(const struct hak_block_batch *bundle)
{
    return HAK_BLOCK_BATCHES ? bundle->count & HAK_BLOCK_BATCH_MOST : 0;
}

/* Stops the process unless the word fits: it and the numbers are in a block that the program has freed. */
static void check_word(const struct hak_slab *slab, const struct hak_block_batch *bundle, uint32_t sum)
{
    if (HAK_BLOCK_BATCHES && HAK_UNLIKELY(bundle->count != hak_block_batch_word(named_by(bundle), sum)))
        fail_bundle(slab, bundle);
}

static uint32_t sum_of(const struct hak_block_batch *bundle)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < named_by(bundle); i++)
        sum ^= bundle->numbers[i];
    return sum;
}

/* How many blocks. It is marked before it is read: a link that was written to after free may lead anywhere. */
static uint32_t mark(struct hak_slab *slab, const struct hak_block_batch *bundle)
{
    hak_slab_mark(slab, bundle);
    hak_mark_check_linked(bundle, slab->cls);
    uint32_t n = named_by(bundle), sum = 0;
    if (HAK_UNLIKELY(n > hak_block_batch_most(slab)))
        fail_bundle(slab, bundle);
    for (uint32_t i = 0; i < n; i++) {
        hak_slab_mark_number(slab, bundle->numbers[i]);
        sum ^= bundle->numbers[i];
    }
    check_word(slab, bundle, sum);
    return n + 1;
}

bool hak_block_batches_move(struct hak_slab *slab)
{
    uint32_t n = 0;
    if (HAK_UNLIKELY(!hak_slab_has_map(slab)))
        return false;
    for (const struct hak_block_batch *bundle = slab->free; bundle; bundle = hak_next_load(bundle))
        n += mark(slab, bundle);
    if (HAK_UNLIKELY(n != slab->free_count))
        fail_bundle(slab, slab->free);
    slab->marked += n;
    slab->free = NULL;
    slab->free_count = 0;
    return true;
}

/* Up to `want` of those that it names, the last ones first. */
static uint32_t take_named(const struct hak_slab *slab, struct hak_block_batch *bundle, uint32_t want, void **slots)
{
    uint32_t n, sum = sum_of(bundle), named = named_by(bundle);
    check_word(slab, bundle, sum);
    for (n = 0; n < want && named; n++) {
        uint32_t number = bundle->numbers[--named];
        if (HAK_UNLIKELY(number >= slab->carved))
            fail_bundle(slab, bundle);
        sum ^= number;
        slots[n] = slab->base + (size_t)number * slab->stride;
    }
    hak_block_batch_close(bundle, named, sum);
    return n;
}

uint32_t hak_block_batches_take_closed(struct hak_slab *slab, uint32_t want, void **slots)
{
    uint32_t n = 0;
    while (n < want && slab->free) {
        struct hak_block_batch *bundle = slab->free;
        hak_slab_check_block(slab, bundle, "free");
        hak_mark_check_linked(bundle, slab->cls);
        if (HAK_UNLIKELY(named_by(bundle) > hak_block_batch_most(slab)))
            fail_bundle(slab, bundle);
        n += take_named(slab, bundle, want - n, slots + n);
        if (n < want) {
            slab->free = hak_next_load(bundle);
            slots[n++] = bundle;
        }
    }
    if (HAK_UNLIKELY(n > slab->free_count))
        fail_bundle(slab, slots[0]);
    slab->free_count -= n;
    slab->used += n;
    return n;
}

uint32_t hak_block_batches_take_few(struct hak_slab *slab, void **slots)
{
    uint32_t n = hak_block_batches_take_closed(slab, slab->free_count, slots);
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (HAK_UNLIKELY(slots[i] == slots[j]))
                hak_slab_fail_free(slab, slots[i]);
    if (HAK_UNLIKELY(slab->free || slab->free_count))
        fail_bundle(slab, slots[0]);
    return n;
}
