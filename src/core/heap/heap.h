/* SPDX-License-Identifier: MIT
 * All bins of a thread at once: when it drains, parks and resumes, or is broken up. */
#ifndef HAK_HEAP_H
#define HAK_HEAP_H

#include "descriptor.h"

/* Empties all bins of the calling thread, and gives up its slabs without live blocks. */
void hak_heap_drain(struct hak_thread *t);
/* Now and then, by the calling thread: of a class that needed no refill since the last look, half of the bin goes, what is
 * in the remote cache, and idle slabs; when the bin is empty, all slabs. One such class a call. */
void hak_heap_look(uint64_t now_ms);
/* From the calling thread's bins to its descriptor, where they wait for the next thread, and back. */
void hak_heap_park(struct hak_thread *t);
void hak_heap_resume(struct hak_thread *t);
/* Ends a parked thread's ownership of everything. */
void hak_heap_abandon(struct hak_thread *t);

/* Bytes usable in the blocks that wait in the calling thread's bins and remote cache, or in those of a parked one. */
size_t hak_heap_free_bytes(void);
size_t hak_heap_parked_bytes(const struct hak_thread *t);

#endif
