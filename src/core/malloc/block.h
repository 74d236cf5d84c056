/* SPDX-License-Identifier: MIT
 * What a pointer leads to: a live block of a slab, a span, or nothing of ours. A pointer to nothing of ours stops the
 * process with one line. */
#ifndef HAK_BLOCK_H
#define HAK_BLOCK_H

#include "core/pages/slab.h"

/* Whether blocks of the slab can be live: if all of them are back, none can be freed. */
bool hak_block_in_slab(const struct hak_slab *slab);
/* `call` is the function that the program called, for the message. */

/* Stops the process unless p, which lies in the slab, is the start of a block whose header byte is whole. */
void hak_block_check(const struct hak_slab *slab, const void *p, const char *call);
/* p is no block of ours. */
_Noreturn HAK_COLD void hak_block_fail_foreign(const void *p, const char *call);
/* Usable bytes; 0 for NULL. Stops the process if p is no block of ours. */
size_t hak_block_usable(const void *p, const char *call);
/* The same for p in `slab`, or outside of all (NULL). */
size_t hak_block_usable_in(struct hak_slab *slab, const void *p, const char *call);

/* In hardened builds: */

/* Stops the process unless p can have had this size and alignment when it was allocated, or since. */
void hak_block_check_size(const void *p, size_t align, size_t size, const char *call);
/* The same for an address that may lie within a block, if the program replaces operators new and delete: stops the
 * process only if a smaller block begins there. */
void hak_block_check_most(const void *p, size_t size, const char *call);
/* A larger block than usual served, because memory was short: from then on only the largest size is checked. */
extern HAK_HIDDEN bool hak_block_sizes_vary;
HAK_INLINE void hak_block_note_larger(void)
{
    if (HAK_HARDENED)
        hak_block_sizes_vary = true;
}

/* Where the canary of a live block stands (src/api/edge.h); NULL for NULL and for blocks that have none: guarded ones,
 * and those of 0 bytes. Stops the process if p is no block. */
void *hak_block_end(const void *p, const char *call);

_Noreturn HAK_COLD void hak_block_fail_end(const void *p, const char *call);

#endif
