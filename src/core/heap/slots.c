/* SPDX-License-Identifier: MIT
 * See slots.h. */
#include "slots.h"

#include "core/os/meta.h"

#define SLOTS_LG_MIN 3u

#if HAK_CACHE_SLOTS
unsigned hak_slots_lg(uint32_t pointers)
{
    unsigned lg = SLOTS_LG_MIN;
    while (lg < HAK_SLOTS_LG_MAX && 1u << lg < pointers)
        lg++;
    return lg;
}

void **hak_slots_get(struct hak_thread *t, unsigned lg)
{
    void **slots = t->spare_slots[lg];
    if (slots)
        t->spare_slots[lg] = slots[0];
    else
        slots = hak_meta_alloc(sizeof *slots << lg);
    return slots;
}

void hak_slots_put(struct hak_thread *t, void **slots, unsigned lg)
{
    slots[0] = t->spare_slots[lg];
    t->spare_slots[lg] = slots;
}
#endif
