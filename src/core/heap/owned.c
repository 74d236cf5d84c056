/* SPDX-License-Identifier: MIT
 * See owned.h. */
#include "owned.h"

#include "core/parts/parts.h"

void hak_owned_release(struct hak_heap *heap, struct hak_slab *slab)
{
    hak_owned_remove(heap, slab);
    hak_count(&heap->counters.slabs_released, 1);
    hak_parts_empty_slab(slab);
    hak_parts.backend->release_slab(slab);
}
