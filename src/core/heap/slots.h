/* SPDX-License-Identifier: MIT
 * Arrays of pointers for a thread's bins and its remote cache, in powers of two. They are metadata, and stay with the
 * descriptor: those that are outgrown, or not needed for a while, serve its other classes. By the thread itself. */
#ifndef HAK_SLOTS_H
#define HAK_SLOTS_H

#include "descriptor.h"

/* The log2 of an array for so many pointers. */
unsigned hak_slots_lg(uint32_t pointers);
/* NULL without memory. */
void **hak_slots_get(struct hak_thread *t, unsigned lg);
void hak_slots_put(struct hak_thread *t, void **slots, unsigned lg);

#endif
