/* SPDX-License-Identifier: MIT
 * Hot slabs: EMPTY ones that wait for the next request of their class on a lock-free stack, their pages not
 * free. A stack that grows too long is emptied at once, so that one lock serves many slabs. Any thread. */
#ifndef SHARED_POOL_HOT_H
#define SHARED_POOL_HOT_H

#include "core/plugin.h"

struct hak_slab *hak_hot_pop(unsigned cls);
/* One of another class, of this length, from the zone of blocks with headers or the other one; NULL if none. */
struct hak_slab *hak_hot_pop_similar(unsigned pages, bool header);
/* Adds an EMPTY slab. False: its stack is too long; what stands there is to be taken first. */
bool hak_hot_push(struct hak_slab *slab);
/* All of the class, for the caller to release. Under a lock, so that a fork does not come meanwhile. */
struct hak_slab *hak_hot_take(unsigned cls);
/* The same of the first class from *cls on that has hot slabs; *cls becomes the next class. NULL: there are no more.
 * Lists of both kinds are linked by hak_slab_stack_next. */
struct hak_slab *hak_hot_take_all(unsigned *cls);

#endif
