/* SPDX-License-Identifier: MIT
 * See owned.h. */
#include "owned.h"

#include "core/parts/parts.h"

void hak_owned_release(struct hak_thread *t, struct hak_slab *slab)
{
    hak_owned_remove(t, slab);
    hak_count(&t->counters.slabs_released, 1);
    hak_parts_empty_slab(slab);
    hak_parts.backend->release_slab(slab);
}
