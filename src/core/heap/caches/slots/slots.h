/* SPDX-License-Identifier: MIT
 * Arrays of pointers for a thread's bins and its remote cache, in powers of two. They are metadata, cut from regions
 * that belong to the heap. Arrays that are outgrown, or not needed for a while, serve the heap's other classes. By the
 * thread itself. */
#ifndef HAK_SLOTS_H
#define HAK_SLOTS_H

#include "core/heap/heap.h"

/* The log2 of the length of an array for so many pointers. */
unsigned hak_slots_lg(uint32_t pointers);
/* NULL without memory. */
void **hak_slots_get(struct hak_heap *heap, unsigned lg);

void hak_slots_put(struct hak_heap *heap, void **slots, unsigned lg);
/* Returns the memory of all the heap's arrays to the kernel: none is in use any more. */
void hak_slots_release(struct hak_heap *heap);

#endif
