/* SPDX-License-Identifier: MIT
 * What a pointer is: a live block of a slab, a span, or none of ours. What is none of ours stops the process with one
 * line. */
#ifndef HAK_BLOCK_H
#define HAK_BLOCK_H

#include "core/pages/slab.h"

/* Whether blocks of the slab can be live: of one whose blocks are all back, none can be freed. */
bool hak_block_in_slab(const struct hak_slab *slab);
/* `call` is the function that the program called, for the message. */

/* Stops the process unless p, which lies in the slab, is the start of a block whose header byte is whole. */
void hak_block_check(const struct hak_slab *slab, const void *p, const char *call);
/* p is no block of ours. */
_Noreturn HAK_COLD void hak_block_fail_foreign(const void *p, const char *call);
/* Usable bytes; 0 for NULL. Stops the process if p is no block of ours. */
size_t hak_block_usable(const void *p, const char *call);

/* Hardened builds: stops the process unless p can have been allocated with this size and alignment. A block may be
 * larger than necessary for many reasons, which this does not check. */
void hak_block_check_size(const void *p, size_t align, size_t size, const char *call);

#endif
