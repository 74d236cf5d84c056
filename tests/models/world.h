/* SPDX-License-Identifier: MIT
 * What all models of slabs share: pages of memory with their descriptors, and what the real files call beyond those
 * that a model is about. */
#ifndef TESTS_MODELS_WORLD_H
#define TESTS_MODELS_WORLD_H

#include "checker.h"
#include "core/pages/slab.h"

enum { WORLD_PAGES = 2 };

/* Called first in each setup. */
void world_setup(void);
/* The descriptor of a page: an ACTIVE slab of `blocks` blocks, of which `taken` are in `out`. */
struct hak_slab *world_slab(unsigned page, unsigned blocks, struct hak_heap *owner, unsigned taken, void **out);
/* Formats a slab, but with few blocks. */
void world_format(struct hak_slab *slab, unsigned blocks, struct hak_heap *owner);
/* Uses a block like a program. */
void world_use(void *block);
/* Takes all free blocks of a slab that the caller owns, and uses them; returns how many. */
unsigned world_use_up(struct hak_slab *slab);
/* Frees a block from outside. */
enum hak_remote world_free(struct hak_slab *slab, void *block);
/* Identifies a thread: an address that is never accessed. */
struct hak_heap *world_thread(unsigned number);

#endif
