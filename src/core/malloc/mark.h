/* SPDX-License-Identifier: MIT
 * Hardened builds: what free looks at before it takes a small block. The block must be one that was handed out. It then
 * carries a mark, a number that depends on its address and on a secret; who frees it again finds that. malloc takes
 * the mark away. Other builds: nothing. */
#ifndef HAK_MARK_H
#define HAK_MARK_H

#include "core/base/sizeclass.h"

#if HAK_HARDENED
#include "core/base/secret.h"
#include "core/pages/space.h"

/* Stops the process if p is not the start of a block, or one that was never handed out. */
HAK_NOINLINE void hak_mark_check_block(const void *p, unsigned cls, const char *call);
HAK_COLD _Noreturn void hak_mark_fail(const void *p, unsigned cls, const char *call);

/* The second word of a 16-byte block with a header reaches its last byte, which names the next class. */
HAK_INLINE bool hak_mark_fits(unsigned cls)
{
    return hak_class_usable(cls) >= 16;
}

HAK_INLINE uintptr_t hak_mark_of(const void *p)
{
    return (uintptr_t)p ^ hak_secret.mark;
}

HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    if (hak_mark_fits(cls))
        ((uintptr_t *)p)[1] = 0;
}

/* False where a call has to find out: the slab is longer than a page. */
HAK_INLINE bool hak_mark_is_block(const void *p, unsigned cls)
{
    const struct hak_slab *slab = hak_space_slab_of_block(p);
    uint64_t place = (uintptr_t)p % HAK_PAGE * hak_divisors[cls];
    return (uint32_t)place < hak_divisors[cls] && place >> 32 < slab->carved && slab->cls == cls;
}

/* `call` is the program's own, for the line that names it. */
HAK_INLINE void hak_mark_check(const void *p, unsigned cls, const char *call)
{
    if (HAK_UNLIKELY(!hak_mark_is_block(p, cls)))
        hak_mark_check_block(p, cls, call);
    if (HAK_UNLIKELY(hak_mark_fits(cls) && ((const uintptr_t *)p)[1] == hak_mark_of(p)))
        hak_mark_fail(p, cls, call);
}

HAK_INLINE void hak_mark_set(void *p, uint64_t cls)
{
    hak_mark_check(p, (unsigned)cls, "free");
    if (hak_mark_fits((unsigned)cls))
        ((uintptr_t *)p)[1] = hak_mark_of(p);
}
#else
HAK_INLINE void hak_mark_clear(void *p, unsigned cls)
{
    (void)p, (void)cls;
}

HAK_INLINE void hak_mark_check(const void *p, unsigned cls, const char *call)
{
    (void)p, (void)cls, (void)call;
}

HAK_INLINE void hak_mark_set(void *p, uint64_t cls)
{
    (void)p, (void)cls;
}
#endif

#endif
