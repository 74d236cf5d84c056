/* SPDX-License-Identifier: MIT
 * What hakmem_heap_* and the slow entries call for blocks of arenas (heap/arena.h). Each ends with a maintenance step.
 */
#ifndef HAK_ARENAS_H
#define HAK_ARENAS_H

#include "core/heap/arena.h"

/* `align` is a power of two; `zero`: the bytes read as zero. NULL and ENOMEM without memory, or beyond a limit. */
void *hak_arena_alloc(struct hak_arena *arena, size_t size, size_t align, bool zero);
/* Allocates in the calling thread's default arena, which it has while hak_suspended is set. */
void *hak_default_alloc(size_t size, size_t align, bool zero);
/* Sets the default arena of the calling thread, NULL: none; returns the one before. Without memory nothing changes, and
 * errno is ENOMEM. */
struct hak_arena *hak_default_set(struct hak_arena *arena);
/* p lies in a slab or span of an arena. Stops the process unless a live block begins there. */
void hak_arena_free(struct hak_slab *slab, void *p);
/* In place; false: it cannot. */
bool hak_arena_expand(struct hak_slab *slab, void *p, size_t size);

#endif
