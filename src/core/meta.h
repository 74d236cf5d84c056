/* SPDX-License-Identifier: MIT
 * Memory for the library's own structures: zeroed, cache-line aligned, never given back, apart from all blocks. */
#ifndef HAK_META_H
#define HAK_META_H

#include "base.h"

/* NULL when the system has none. Any thread. */
void *hak_meta_alloc(size_t size);
/* The first memory to hand out: zeroed and writable. From hak_space_init. */
void hak_meta_give(void *chunk, size_t size);
size_t hak_meta_bytes(void);

extern struct hak_lock hak_meta_lock;

#endif
