/* SPDX-License-Identifier: MIT
 * See slots.h. */
#include "slots.h"

#include "core/os/meta.h"

#define SLOTS_LG_MIN 2u
#define SLOTS_LG_CHUNK 3u /* of what metadata comes in: a cache line */

#if HAK_CACHE_SLOTS
unsigned hak_slots_lg(uint32_t pointers)
{
    unsigned lg = SLOTS_LG_MIN;
    while (lg < HAK_SLOTS_LG_MAX && 1u << lg < pointers)
        lg++;
    return lg;
}

static void **new_slots(struct hak_thread *t, unsigned lg)
{
    void **slots = hak_meta_alloc(sizeof *slots << hak_max(lg, SLOTS_LG_CHUNK));
    for (unsigned half = SLOTS_LG_CHUNK; slots && half-- > lg;)
        hak_slots_put(t, slots + (1u << half), half);
    return slots;
}

void **hak_slots_get(struct hak_thread *t, unsigned lg)
{
    void **slots = t->spare_slots[lg];
    if (!slots)
        return new_slots(t, lg);
    t->spare_slots[lg] = slots[0];
    return slots;
}

void hak_slots_put(struct hak_thread *t, void **slots, unsigned lg)
{
    slots[0] = t->spare_slots[lg];
    t->spare_slots[lg] = slots;
}
#endif
