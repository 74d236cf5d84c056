/* SPDX-License-Identifier: MIT
 * The one drain: lists of free blocks go back to their slabs. */
#ifndef HAK_DRAIN_H
#define HAK_DRAIN_H

#include "descriptor.h"

/* Blocks of any slabs. t: the calling thread's descriptor, or one that it has taken; NULL without one. */
void hak_drain(struct hak_thread *t, void *blocks);

#endif
