/* SPDX-License-Identifier: MIT
 * What a pointer is: a live block of a slab, a span, or none of ours. What is none of ours stops the process with one
 * line. */
#ifndef HAK_BLOCK_H
#define HAK_BLOCK_H

#include "core/pages/slab.h"

/* Whether blocks of the slab can be live: of one whose blocks are all back, none can be freed. */
bool hak_block_in_slab(const struct hak_slab *slab);
/* `call` is the program's own, for the line that names it. */

/* Stops the process unless p, which lies in the slab, is the start of a block whose header byte is whole. */
void hak_block_check(const struct hak_slab *slab, const void *p, const char *call);
/* p is no block of ours. */
_Noreturn HAK_COLD void hak_block_fail_foreign(const void *p, const char *call);
/* Bytes that the program may use; 0 for NULL. Stops the process for what is no block of ours. */
size_t hak_block_usable(const void *p, const char *call);

/* Stops the process unless `size` bytes, aligned to `align`, can have been asked for when p was handed out. Of the
 * other direction nothing is said: a block may be larger for many reasons. In hardened builds. */
void hak_block_check_size(const void *p, size_t align, size_t size, const char *call);

#endif
