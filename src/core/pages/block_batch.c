/* SPDX-License-Identifier: MIT
 * See block_batch.h. */
#include "block_batch.h"

#include "core/base/log.h"

static _Noreturn HAK_COLD void fail_batch(const struct hak_slab *slab, const void *block)
{
    hak_log_fatal(
        "double free or corruption: slab %p of %u-byte blocks has other blocks or another number of blocks on "
        "its list than came back; one is %p",
        (void *)slab->base, slab->stride, block);
}

static uint32_t named_by(const struct hak_block_batch *batch)
{
    return HAK_BLOCK_BATCHES ? batch->count & HAK_BLOCK_BATCH_MOST : 0;
}

/* Stops the process unless the checksum matches: the program may have written to the block after it freed it. */
static void check_word(const struct hak_slab *slab, const struct hak_block_batch *batch, uint32_t sum)
{
    if (HAK_BLOCK_BATCHES && HAK_UNLIKELY(batch->count != hak_block_batch_word(named_by(batch), sum)))
        fail_batch(slab, batch);
}

static uint32_t sum_of(const struct hak_block_batch *batch)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < named_by(batch); i++)
        sum ^= batch->numbers[i];
    return sum;
}

/* Marks the blocks of a batch as free; returns how many. It marks the batch itself before it reads it: a link that was
 * written after free may lead anywhere. */
static uint32_t mark(struct hak_slab *slab, const struct hak_block_batch *batch)
{
    hak_slab_mark(slab, batch);
    hak_mark_check_linked(batch, slab->cls);
    uint32_t n = named_by(batch), sum = 0;
    if (HAK_UNLIKELY(n > hak_block_batch_most(slab)))
        fail_batch(slab, batch);
    for (uint32_t i = 0; i < n; i++) {
        hak_slab_mark_number(slab, batch->numbers[i]);
        sum ^= batch->numbers[i];
    }
    check_word(slab, batch, sum);
    return n + 1;
}

bool hak_block_batches_move(struct hak_slab *slab)
{
    uint32_t n = 0;
    if (HAK_UNLIKELY(!hak_slab_has_bitmap(slab)))
        return false;
    for (const struct hak_block_batch *batch = slab->free; batch; batch = hak_slab_next(slab, batch))
        n += mark(slab, batch);
    if (HAK_UNLIKELY(n != slab->free_count))
        fail_batch(slab, slab->free);
    slab->marked += n;
    slab->free = NULL;
    slab->free_count = 0;
    return true;
}

/* Takes up to `want` of the blocks that the batch names, from the last number backwards. */
static uint32_t take_named(const struct hak_slab *slab, struct hak_block_batch *batch, uint32_t want, void **slots)
{
    uint32_t n, sum = sum_of(batch), named = named_by(batch);
    check_word(slab, batch, sum);
    for (n = 0; n < want && named; n++) {
        uint32_t number = batch->numbers[--named];
        if (HAK_UNLIKELY(number >= slab->carved))
            fail_batch(slab, batch);
        sum ^= number;
        slots[n] = slab->base + (size_t)number * slab->stride;
    }
    hak_block_batch_close(batch, named, sum);
    return n;
}

uint32_t hak_block_batches_take_closed(struct hak_slab *slab, uint32_t want, void **slots)
{
    uint32_t n = 0;
    while (n < want && slab->free) {
        struct hak_block_batch *batch = slab->free;
        hak_slab_check_block(slab, batch, "free");
        hak_mark_check_linked(batch, slab->cls);
        if (HAK_UNLIKELY(named_by(batch) > hak_block_batch_most(slab)))
            fail_batch(slab, batch);
        n += take_named(slab, batch, want - n, slots + n);
        if (n < want) {
            slab->free = hak_slab_next(slab, batch);
            slots[n++] = batch;
        }
    }
    if (HAK_UNLIKELY(n > slab->free_count))
        fail_batch(slab, slots[0]);
    slab->free_count -= n;
    slab->used += n;
    hak_slab_count(slab, n);
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
        fail_batch(slab, slots[0]);
    return n;
}
