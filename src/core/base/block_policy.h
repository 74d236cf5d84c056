/* SPDX-License-Identifier: MIT
 * What a free block carries, and where the library records that a block is free. This header decides it for each cache
 * (-Dcache) and for hardened builds.
 *
 *                        list                     array                      hardened
 *   in a bin             link to the next block   nothing                    marks; with `list` a link and one mark
 *   in a remote cache    link to the next block   nothing                    as in a bin
 *   on a remote list     link to the next block   link, numbers of others    link and mark
 *   back in its slab     link above 1 KiB         nothing: bitmap of all     nothing: bitmap of all
 */
#ifndef HAK_BLOCK_POLICY_H
#define HAK_BLOCK_POLICY_H

#include "words.h"

/* Bins and remote caches are arrays of pointers. */
#define HAK_BLOCKS_IN_SLOTS HAK_CACHE_SLOTS
/* Blocks in them carry nothing, so metadata and a thread's storage have all of a heap (hak_heaps_fork_child). */
#define HAK_BLOCKS_ARE_BARE (HAK_CACHE_SLOTS && !HAK_HARDENED)
/* A block on a remote list names others of its slab (pages/block_batch.h). A mark takes the place of these numbers. */
#define HAK_BLOCK_BATCHES (HAK_CACHE_SLOTS && !HAK_HARDENED)
/* A free block carries marks, which each free and each malloc checks (pages/link.h). */
#define HAK_BLOCKS_ARE_MARKED HAK_HARDENED
/* The first mark takes the place of the link. */
#define HAK_MARKS_IN_BOTH_WORDS (HAK_HARDENED && HAK_CACHE_SLOTS)
/* Slabs of all classes have a free bitmap, not only those of small blocks: a drain to it reads no block, and what a
 * program writes after free does not change it. */
#define HAK_BITMAP_ALL (HAK_CACHE_SLOTS || HAK_HARDENED)

/* Bytes behind the program's part of a block, which hold a canary (src/api/edge.h). Valgrind has its own. */
#define HAK_CANARY (HAK_HARDENED_FULL && !HAK_VALGRIND ? 8 : 0)

/* What each cache counts per class; what hardened builds count. */
#define HAK_COUNTED_CLASSES (HAK_CACHE_ARRAY ? HAK_NCLASSES : 0)
#if HAK_HARDENED
#define HAK_HARDENED_COUNTERS(X)                                \
    X(overwritten, "freed blocks whose bytes were overwritten") \
    X(quarantined, "freed blocks that were held back from use")
#else
#define HAK_HARDENED_COUNTERS(X)
#endif

#endif
