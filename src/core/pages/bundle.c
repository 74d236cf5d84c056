/* SPDX-License-Identifier: MIT
 * See bundle.h. */
#include "bundle.h"

#include "core/base/log.h"

static _Noreturn HAK_COLD void fail_bundle(const struct hak_slab *slab, const void *block)
{
    hak_log_fatal("double free or corruption: slab %p of %u-byte blocks has another number of blocks on its list than "
                  "came back; one is %p",
                  (void *)slab->base, slab->stride, block);
}

static uint32_t named_by(const struct hak_bundle *bundle)
{
    return HAK_BUNDLES ? bundle->count : 0;
}

/* How many blocks. It is marked before it is read: a link that was written to after free may lead anywhere. */
static uint32_t mark(struct hak_slab *slab, const struct hak_bundle *bundle)
{
    hak_slab_mark(slab, bundle);
    hak_mark_check_linked(bundle, slab->cls);
    uint32_t n = named_by(bundle);
    if (HAK_UNLIKELY(n > hak_bundle_most(slab)))
        fail_bundle(slab, bundle);
    for (uint32_t i = 0; i < n; i++)
        hak_slab_mark_number(slab, bundle->numbers[i]);
    return n + 1;
}

bool hak_bundles_move(struct hak_slab *slab)
{
    uint32_t n = 0;
    if (HAK_UNLIKELY(!hak_slab_has_map(slab)))
        return false;
    for (const struct hak_bundle *bundle = slab->free; bundle; bundle = hak_next_load(bundle))
        n += mark(slab, bundle);
    if (HAK_UNLIKELY(n != slab->free_count))
        fail_bundle(slab, slab->free);
    slab->marked += n;
    slab->free = NULL;
    slab->free_count = 0;
    return true;
}

uint32_t hak_bundles_take_closed(struct hak_slab *slab, uint32_t want, void **slots)
{
    uint32_t n = 0;
    while (n < want && slab->free) {
        struct hak_bundle *bundle = slab->free;
        hak_slab_check_block(slab, bundle, "free");
        hak_mark_check_linked(bundle, slab->cls);
        if (HAK_UNLIKELY(named_by(bundle) > hak_bundle_most(slab) || n == slab->free_count))
            fail_bundle(slab, bundle);
        if (named_by(bundle)) {
            uint32_t number = bundle->numbers[--bundle->count];
            if (HAK_UNLIKELY(number >= slab->carved))
                fail_bundle(slab, bundle);
            slots[n++] = slab->base + (size_t)number * slab->stride;
        } else {
            slab->free = hak_next_load(bundle);
            slots[n++] = bundle;
        }
    }
    slab->free_count -= n;
    slab->used += n;
    return n;
}

uint32_t hak_bundles_take_few(struct hak_slab *slab, void **slots)
{
    uint32_t n = hak_bundles_take_closed(slab, slab->free_count, slots);
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (HAK_UNLIKELY(slots[i] == slots[j]))
                hak_slab_fail_free(slab, slots[i]);
    if (HAK_UNLIKELY(slab->free || slab->free_count))
        fail_bundle(slab, slots[0]);
    return n;
}
