/* SPDX-License-Identifier: MIT
 * The drain, which all callers share: it returns a list of free blocks to their slabs. */
#ifndef HAK_DRAIN_H
#define HAK_DRAIN_H

#include "heap.h"

/* The blocks may belong to any slabs. heap: the heap that the calling thread has entered, or one that it
 * dissolves; NULL if it has none. */
void hak_drain(struct hak_heap *heap, void *blocks);
/* The same for an array of pointers to blocks: it does not touch blocks that go to a bitmap. */
void hak_drain_array(struct hak_heap *heap, void *const *blocks, uint32_t count);

#endif
