/* SPDX-License-Identifier: MIT
 * Hardened builds: what free looks at before it takes a small block. The block must be one that was handed out. It then
 * carries a mark, a number that depends on its address and on a secret; who frees it again finds that. malloc takes
 * the mark away.
 * The mark is the block's second word. Where bins are arrays, the first one is a mark, too, and each block of a bin has
 * both: malloc finds out what was written there after free. Of lists the first word is a link (link.h).
 * Other builds: nothing. */
#ifndef HAK_MARK_H
#define HAK_MARK_H

#include "core/base/sizeclass.h"

#if HAK_HARDENED
#include "core/base/secret.h"
#include "core/pages/space.h"

/* p is not the start of a block, or one that was never handed out, or is free. */
HAK_COLD _Noreturn void hak_mark_fail(const void *p, unsigned cls, const char *call);

/* The second word of a 16-byte block with a header reaches its last byte, which names the next class. */
HAK_INLINE bool hak_mark_fits(unsigned cls)
{
    return !HAK_HEADER_LIMIT || hak_class_usable(cls) >= 16;
}

HAK_INLINE uintptr_t hak_mark_of(const void *p)
{
    return (uintptr_t)p ^ hak_secret.mark;
}

/* The other one. */
HAK_INLINE uintptr_t hak_mark_first(uintptr_t mark)
{
    return __builtin_bswap64(mark);
}

HAK_INLINE void hak_mark_put(void *p)
{
    uintptr_t *words = p, mark = hak_mark_of(p);
    if (HAK_CACHE_SLOTS)
        words[0] = hak_mark_first(mark);
    words[1] = mark;
}

/* A block has left its slab, where it may have been on a list. */
HAK_INLINE void hak_mark_renew(void *p, unsigned cls)
{
    if (HAK_CACHE_SLOTS && hak_mark_fits(cls))
        hak_mark_put(p);
}

/* Whether a block of a bin is as it came there. */
HAK_INLINE bool hak_mark_is_whole(const void *p, unsigned cls)
{
    const uintptr_t *words = p, mark = hak_mark_of(p);
    return !HAK_CACHE_SLOTS || !hak_mark_fits(cls) ||
           (HAK_LIKELY(words[1] == mark) && HAK_LIKELY(words[0] == hak_mark_first(mark)));
}

/* The program gets to see neither of them, which depend on secrets. */
HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    uintptr_t *words = p;
    words[0] = 0; /* or a link */
    if (hak_mark_fits(cls))
        words[1] = 0;
}

/* Stops the process if it was written to after free. */
HAK_INLINE void hak_mark_check_whole(const void *p, unsigned cls)
{
    if (HAK_UNLIKELY(!hak_mark_is_whole(p, cls)))
        hak_space_fail_link(p);
}

__extension__ typedef unsigned __int128 hak_place;

/* Whether p, in a page whose tag or header byte names the class, is the start of a block that was cut: in the product
 * the number of the block stands high, and low what is less than the inverse for the start of one alone. */
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
           (HAK_UNLIKELY(words[1] == mark) || (HAK_CACHE_SLOTS && HAK_UNLIKELY(words[0] == hak_mark_first(mark))));
}

/* Marks a block. False, for the fast path, which calls nothing: it is none, or is marked. */
HAK_INLINE bool hak_mark_try_set(void *p, uint64_t cls)
{
    if (HAK_UNLIKELY(!hak_mark_is_block(p, cls) || hak_mark_is_set(p, cls)))
        return false;
    if (hak_mark_fits((unsigned)cls))
        hak_mark_put(p);
    return true;
}

/* Stops the process where p is not a block, or is marked. `call` is the program's own, for the line that names it. */
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
#else
HAK_INLINE void hak_mark_renew(void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE bool hak_mark_is_whole(const void *p, unsigned cls)
{
    (void)p, (void)cls;
    return true;
}

HAK_INLINE void hak_mark_check_whole(const void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE void hak_mark_check(const void *p, unsigned cls, const char *call)
{
    (void)p, (void)cls, (void)call;
}

HAK_INLINE bool hak_mark_try_set(void *p, uint64_t cls)
{
    (void)p, (void)cls;
    return true;
}

HAK_INLINE void hak_mark_set(void *p, uint64_t cls)
{
    (void)p, (void)cls;
}
#endif

#endif
