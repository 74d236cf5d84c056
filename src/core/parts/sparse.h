/* SPDX-License-Identifier: MIT
 * Sparse slabs: whole system pages under free blocks go back to the kernel while the slab keeps its live blocks. They
 * are purged when no block was taken from the slab for the purge delay, and by a trim. */
#ifndef HAK_SPARSE_H
#define HAK_SPARSE_H

#include "core/pages/slab.h"

/* Whether no block was taken from the slab for the delay, or `now`, and some came back since its last purge. */
bool hak_sparse_is_due(const struct hak_slab *slab, bool now);
/* Purges such pages of an ACTIVE slab that is due; its owner calls this. Returns the bytes. */
size_t hak_sparse_purge(struct hak_slab *slab);
/* The bytes of all purges so far. */
uint64_t hak_sparse_purged(void);

#endif
