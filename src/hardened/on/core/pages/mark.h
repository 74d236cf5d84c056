/* SPDX-License-Identifier: MIT
 * Hardened builds: the checks that free makes before it takes a small block. The block must have been handed out, and
 * carry no mark (link.h). Other builds: nothing. */
#ifndef HAK_MARK_H
#define HAK_MARK_H

#include "core/base/sizeclass.h"
#include "core/pages/link.h"
#include "core/pages/space.h"

/* Stops the process: p is not the start of a block, or was never handed out, or is free. */
HAK_COLD _Noreturn void hak_mark_fail(const void *p, unsigned cls, const char *call);

__extension__ typedef unsigned __int128 hak_place;

/* Whether p, in a page whose tag or header byte names the class, is the start of a carved block. The upper half of the
 * product is the number of the block; the lower half is less than the inverse only at the start of a block. */
HAK_INLINE bool hak_mark_is_block(const void *p, uint64_t cls)
{
    const struct hak_slab *slab = hak_space_slab_of_tagged(p);
    hak_place place = (hak_place)((uintptr_t)p - (uintptr_t)slab->base) * hak_inverses[cls];
    return HAK_LIKELY((uint64_t)place < hak_inverses[cls]) && HAK_LIKELY((uint64_t)(place >> 64) < slab->carved) &&
           (!HAK_HEADER_LIMIT || HAK_LIKELY(slab->cls == cls));
}

HAK_INLINE bool hak_mark_is_set(const void *p, uint64_t cls)
{
    const uintptr_t *words = p, mark = hak_mark_of(p);
    return hak_mark_fits((unsigned)cls) &&
           (HAK_UNLIKELY(words[1] == mark) ||
            (HAK_MARKS_IN_BOTH_WORDS && HAK_UNLIKELY(words[0] == hak_mark_first(mark))));
}

/* Marks a block. False, for the fast path, which has no calls: p is no block, or is marked. */
HAK_INLINE bool hak_mark_try_set(void *p, uint64_t cls)
{
    if (HAK_UNLIKELY(!hak_mark_is_block(p, cls) || hak_mark_is_set(p, cls)))
        return false;
    if (hak_mark_fits((unsigned)cls))
        hak_mark_put(p);
    return true;
}

/* Stops the process if p is not a block, or is marked. `call` is the function that the program called, for the
 * message. */
HAK_INLINE void hak_mark_check(const void *p, unsigned cls, const char *call)
{
    if (HAK_UNLIKELY(!hak_mark_is_block(p, cls) || hak_mark_is_set(p, cls)))
        hak_mark_fail(p, cls, call);
}

HAK_INLINE void hak_mark_set(void *p, uint64_t cls)
{
    if (HAK_UNLIKELY(!hak_mark_try_set(p, cls)))
        hak_mark_fail(p, (unsigned)cls, "free");
}

#endif
