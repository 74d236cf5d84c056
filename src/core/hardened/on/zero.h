/* SPDX-License-Identifier: MIT
 * See core/pages/zero.h. */
#ifndef HAK_ON_ZERO_H
#define HAK_ON_ZERO_H

/* NULL where most are taken: then a block of one byte serves. */
void *hak_zero_alloc(void);
/* Whether p is such a block. Stops the process if it lies among them, but is none; `call` is the program's own. */
bool hak_zero_is_block(const void *p, const char *call);
/* False if p does not lie among them. */
bool hak_zero_free(void *p);

/* Whether free overwrites blocks with zeros (HAKMEM_ZERO_ON_FREE). */
HAK_INLINE bool hak_zeroes_on_free(void)
{
    return hak_options.zero_on_free;
}

#endif
